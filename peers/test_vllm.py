"""Exports in vLLM: directories that it runs natively, and our modelling file through its
transformers backend."""

import json
import subprocess

import numpy as np
import pytest
import torch

import program
from configurations import FAMILIES, case_name, random_configuration
from conftest import random_ids

# The configurations of each family with heads of a width that vLLM's CPU attention takes.
CASES = [(family, index) for family in FAMILIES for index in (2, 3)]


def runs_natively(case) -> bool:
    """Several sub-MLPs run as nemotron_nas, which knows no QK-norm."""
    return case[0] in ("llama", "qwen3", "olmo2", "hourglass")


@pytest.fixture(scope="module")
def answers(trained, tmp_path_factory) -> dict:
    """(route, case) -> vLLM's log-probabilities [T - 1, V] for ids(); all in one process of vLLM."""
    place = tmp_path_factory.mktemp("vllm")
    models = {}
    for case in CASES:
        for route in ("hf", "vllm") if runs_natively(case) else ("hf",):
            out = place / f"{route}-{case_name(case)}"
            call = ["export", trained(case).path, "--to", route, "--context", 256, "--out", out]
            program.sandglass(*call)
            models[out.name] = str(out)
    request, answer = place / "request.json", place / "answer.npz"
    request.write_text(json.dumps({"models": models, "ids": ids(trained)}))
    call = [program.PLACE / "vllm/bin/python", program.PEERS / "vllm_runner.py", request, answer]
    done = subprocess.run(list(map(str, call)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(np.load(answer))


def ids(trained) -> list[int]:
    return random_ids(5, trained(CASES[0]).configuration().vocabulary)


@pytest.mark.parametrize("case", CASES, ids=case_name)
@pytest.mark.parametrize("route", ["hf", "vllm"])
def test_log_probabilities(route, case, trained, answers, tmp_path, record):
    run = trained(case)
    if route == "vllm" and not runs_natively(case):
        with pytest.raises(AssertionError, match="--to hf"):
            program.sandglass("export", run.path, "--to", "vllm", "--out", tmp_path / "out")
        assert not (tmp_path / "out").exists()
        return
    logits = torch.from_numpy(program.logits(run.path, ids(trained), tmp_path / "logits.npy"))
    ours = logits.double().log_softmax(-1).numpy()[:-1]
    theirs = answers[f"{route}-{case_name(case)}"]
    assert theirs.dtype == np.float32, theirs
    difference = np.abs(theirs[:, : ours.shape[1]] - ours).max()
    assert record(f"log-probabilities: absolute, vLLM, --to {route}", case[0], difference) < 1e-4
