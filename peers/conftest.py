"""What the peer tests share: prepared data, models with weights to compare, and the report."""

import collections
import dataclasses
import json
import pathlib
import random

import numpy as np
import pytest
import torch

import program
from configurations import random_configuration
from program import Run
from reference_model import Configuration, Decoder

# The models are tiny: a second thread would only wait for the first.
torch.set_num_threads(1)

WORDS = 400
LENGTH = 201  # tokens: logits are compared through position 200


def random_text(seed: int, words: int) -> str:
    """Sentences of made-up words whose frequencies fall as in a real text."""
    draw = random.Random(seed)
    letters = "etaoinshrdlu"
    lexicon = ["".join(draw.choices(letters, k=draw.randint(1, 8))) for _ in range(WORDS)]
    weights = [1 / (rank + 2) for rank in range(WORDS)]
    chosen = draw.choices(lexicon, weights, k=words)
    for i in range(0, words, 12):
        chosen[i] = chosen[i].capitalize()
    sentences = [" ".join(chosen[i : i + 12]) + "." for i in range(0, words, 12)]
    return "\n\n".join(" ".join(sentences[i : i + 8]) for i in range(0, len(sentences), 8)) + "\n"


@dataclasses.dataclass(frozen=True)
class Data:
    path: pathlib.Path
    vocabulary: int


@pytest.fixture(scope="session")
def data(tmp_path_factory) -> Data:
    """A made-up text, tokenized and split."""
    place = tmp_path_factory.mktemp("data")
    text, tokenizer, prepared = place / "text.txt", place / "tokenizer.json", place / "prepared"
    text.write_text(random_text(seed=1, words=40_000))
    by_paragraph = ["--documents", "paragraph"]
    program.sandglass(
        "tokenizer", "train", "--vocabulary", 331, *by_paragraph, "--out", tokenizer, text
    )
    program.sandglass("prepare", "--tokenizer", tokenizer, *by_paragraph, "--out", prepared, text)
    vocabulary = len(json.loads(tokenizer.read_text())["model"]["vocab"])
    return Data(prepared, vocabulary)


def run_settings(c: Configuration, data: Data, steps: int, **train) -> dict:
    """A run file of `steps` steps of 4 sequences of 64 tokens."""
    batch, length = 4, 64
    return {
        "name": "peer",
        "model": program.model_table(c),
        "data": {"path": str(data.path)},
        "system": {"threads": 1},
        "train": dict(
            tokens=steps * batch * length, batch=batch, length=length, eval_tokens=length, **train
        ),
    }


def train(settings: dict, out: pathlib.Path, **tables) -> Run:
    """Trains as `settings` say, with the keys of `tables` beside them."""
    run_file = out.with_suffix(".toml")
    merged = {**settings, **{name: settings.get(name, {}) | keys for name, keys in tables.items()}}
    run_file.write_text(program.toml(merged))
    program.sandglass("train", run_file, "--out", out)
    return Run(out)


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """(family, index) -> a run whose every weight and gain is far from its initial value."""
    made = {}

    def make(case) -> Run:
        if case not in made:
            c = random_configuration(*case, data.vocabulary)
            out = tmp_path_factory.mktemp("run") / "run"
            # AdamW moves every parameter by about the learning rate at each step; logits then have
            # a standard deviation of about one.
            made[case] = train(
                run_settings(c, data, steps=6),
                out,
                model={"init_std": 0.08},
                optimizer={"learning_rate": 0.03, "warmup_steps": 0, "clip_norm": 0.0},
            )
        return made[case]

    return make


def reference(run: Run, dtype=torch.float64) -> Decoder:
    """The independent model with a run's weights."""
    decoder = Decoder(run.configuration()).to(dtype)
    decoder.load({name: torch.from_numpy(value) for name, value in run.weights().items()})
    return decoder


def random_ids(seed: int, vocabulary: int, length: int = LENGTH) -> list[int]:
    return np.random.default_rng(seed).integers(0, vocabulary, length).tolist()


_largest = collections.defaultdict(float)


@pytest.fixture(scope="session")
def record():
    """Notes a difference; the largest of each kind and family is printed at the end."""

    def note(kind: str, family: str, difference: float) -> float:
        _largest[kind, family] = max(_largest[kind, family], float(difference))
        return float(difference)

    return note


def pytest_terminal_summary(terminalreporter):
    if not _largest:
        return
    terminalreporter.section("largest differences")
    for (kind, family), difference in sorted(_largest.items()):
        terminalreporter.write_line(f"{kind:44} {family:22} {difference:.2e}")
