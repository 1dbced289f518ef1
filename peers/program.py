"""Runs the program under test and reads what it writes."""

import dataclasses
import json
import os
import pathlib
import subprocess
import tomllib

import numpy as np
import torch
from safetensors.numpy import load_file

from reference_model import Configuration

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
PEERS = REPOSITORY / "peers"
PROGRAM = os.environ.get("SANDGLASS", str(REPOSITORY / "build/release/sandglass"))
PLACE = pathlib.Path(
    os.environ.get("SANDGLASS_PEERS", pathlib.Path.home() / ".cache/sandglass-peers")
)


def sandglass(*arguments) -> str:
    """Standard output of a call; a failure shows what the program said."""
    call = [PROGRAM, *map(str, arguments)]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(call)}\nexit status {done.returncode}\n{done.stderr}")
    return done.stdout


def join(ids) -> str:
    return ",".join(map(str, ids))


def logits(model, ids, out: pathlib.Path) -> np.ndarray:
    """[T, V] of any model that the program can load."""
    sandglass("logits", model, "--ids", join(ids), "--threads", 1, "--out", out)
    return np.load(out)


def gradients(model, ids, out: pathlib.Path) -> dict[str, np.ndarray]:
    """Of the mean next-token cross-entropy over `ids`, by Sandglass's parameter names."""
    sandglass("logits", model, "--ids", join(ids), "--threads", 1, "--gradients", out)
    return load_file(out)


def toml(tables: dict) -> str:
    """TOML of tables of plain values and inline tables."""

    def spelled(value) -> str:
        if isinstance(value, dict):
            return "{" + ", ".join(f"{k} = {spelled(v)}" for k, v in value.items()) + "}"
        return json.dumps(value)  # JSON's spelling of strings, numbers and lists is TOML's

    plain = {key: value for key, value in tables.items() if not isinstance(value, dict)}
    lines = [f"{key} = {spelled(value)}" for key, value in plain.items()]
    for name, table in tables.items():
        if name not in plain:
            lines += [f"[{name}]", *(f"{key} = {spelled(value)}" for key, value in table.items())]
    return "\n".join(lines) + "\n"


def model_table(c: Configuration) -> dict:
    """The [model] table that asks for `c`; what has its default stays away."""
    table = {"shape": c.shape}
    size_fields = {"layers", "d_model", "heads", "head_width", "kv_heads", "ffn"}
    for field in dataclasses.fields(c):
        value = getattr(c, field.name)
        if field.name not in size_fields and value != field.default:
            table[field.name] = value
    return table


@dataclasses.dataclass(frozen=True)
class Run:
    """A run directory."""

    path: pathlib.Path

    def settings(self) -> dict:
        return tomllib.loads((self.path / "run.toml").read_text())

    def configuration(self) -> Configuration:
        return Configuration.parse(self.settings()["model"])

    def weights(self) -> dict[str, np.ndarray]:
        newest = max((self.path / "checkpoints").glob("step-*[0-9]"))
        return load_file(newest / "model.safetensors")

    def steps(self) -> list[dict]:
        """What each optimizer step measured, in order."""
        lines = map(json.loads, (self.path / "metrics.jsonl").read_text().splitlines())
        return [line for line in lines if "learning_rate" in line]

    def sample(self, step: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs and targets of a step, [B, T] each, as the program tells them."""
        shown = json.loads(sandglass("data", "show", self.path, "--step", step, "--json"))
        ids = [sample["ids"] for sample in shown["samples"]]
        targets = [sample["targets"] for sample in shown["samples"]]
        return torch.tensor(ids), torch.tensor(targets)


def encode(tokenizer: pathlib.Path, text: str) -> list[int]:
    """Ids of a text, by the reference implementation of the file format."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tokenizer)).encode(text, add_special_tokens=False).ids


def end_of_text(tokenizer: pathlib.Path) -> int:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(tokenizer)).token_to_id("<|endoftext|>")
