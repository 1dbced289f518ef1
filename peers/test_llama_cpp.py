"""Exported GGUF files in llama.cpp."""

import json

import llama_cpp_runner as llama
import numpy as np
import pytest

import program
from configurations import case_name, cases
from conftest import random_ids

# The families that a GGUF architecture can hold: llama, qwen3, olmo2, and deci for the hourglass.
GGUF_CASES = cases(["llama", "qwen3", "olmo2", "hourglass"])


def refusal(case, c) -> str | None:
    """What llama.cpp cannot do, as the export must say it."""
    if case[0] == "olmo2" and c.heads * c.head_width != c.d_model:
        return "heads x head width = d_model"
    if case[0] in ("olmo2", "qwen3") and c.rope_scaling and c.rope_scaling["kind"] == "llama3":
        return "no llama3 scaling"
    return None


@pytest.fixture(scope="session")
def exported(trained, tmp_path_factory):
    """case -> (run, its GGUF file); skips what the export rightly refuses."""
    made = {}

    def make(case):
        run = trained(case)
        out = tmp_path_factory.mktemp("gguf") / "model.gguf"
        call = ["export", run.path, "--to", "gguf", "--type", "f32", "--out", out]
        reason = refusal(case, run.configuration())
        if reason:
            with pytest.raises(AssertionError, match=reason):
                program.sandglass(*call)
            assert not out.exists()
            pytest.skip(f"refused: {reason}")
        if case not in made:
            program.sandglass(*call)
            made[case] = out
        return run, made[case]

    return make


@pytest.mark.parametrize("case", GGUF_CASES, ids=case_name)
def test_logits(case, exported, tmp_path, record):
    run, file = exported(case)
    ids = random_ids(9, run.configuration().vocabulary)
    ours = program.logits(run.path, ids, tmp_path / "logits.npy")
    exact = llama.logits(file, ids, llama.EXACT)[:, : ours.shape[1]]
    assert record("logits: absolute, llama.cpp f32", case[0], np.abs(exact - ours).max()) < 1e-4
    default = llama.logits(file, ids, llama.DEFAULT)[:, : ours.shape[1]]
    assert record("logits: absolute, llama.cpp default", case[0], np.abs(default - ours).max()) < 5e-3
    # The same likeliest token, wherever the two likeliest are further apart than that.
    second, first = np.sort(ours, -1)[:, -2:].T
    differs = default.argmax(-1) != ours.argmax(-1)
    record("positions of 201 with another token, default", case[0], differs.sum())
    assert not (differs & (first - second > 5e-3)).any()


@pytest.mark.parametrize("case", GGUF_CASES, ids=case_name)
def test_greedy_continuation(case, exported):
    run, file = exported(case)
    call = ["generate", run.path, "--temperature", 0, "--tokens", 40, "--threads", 1, "--json"]
    generated = json.loads(program.sandglass(*call, "--prompt", "tahes nor"))
    end_of_text = program.end_of_text(run.path / "tokenizer.json")
    prompt = [end_of_text, *program.encode(run.path / "tokenizer.json", "tahes nor")]
    expected = llama.greedy(file, prompt, 40)
    if end_of_text in expected:
        expected = expected[: expected.index(end_of_text)]
    assert generated["ids"] == expected
