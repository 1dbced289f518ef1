"""Sandglass against a decoder written from the equations in PyTorch (reference_model.py)."""

import dataclasses

import numpy as np
import pytest
import torch

import program
from configurations import case_name, cases, random_configuration
from conftest import random_ids, reference, run_settings, train


def largest_relative(ours: dict, theirs: dict) -> float:
    """Largest over the parameters of |difference| / |theirs|, in the Euclidean norm."""
    assert set(ours) == set(theirs)
    worst = 0.0
    for name, value in theirs.items():
        difference = np.linalg.norm(ours[name].ravel() - value.ravel())
        worst = max(worst, difference / np.linalg.norm(value))
    return worst


@pytest.mark.parametrize("case", cases(), ids=case_name)
def test_logits(case, trained, tmp_path, record):
    run = trained(case)
    decoder = reference(run)
    ids = random_ids(7, decoder.c.vocabulary)
    with torch.no_grad():
        expected = decoder(torch.tensor([ids]))[0].numpy()
    assert expected.std() > 0.5  # a model worth comparing
    got = program.logits(run.path, ids, tmp_path / "logits.npy")
    assert got.shape == expected.shape
    assert record("logits: absolute, reference", case[0], np.abs(got - expected).max()) < 1e-4


@pytest.mark.parametrize("case", cases(), ids=case_name)
def test_gradients(case, trained, tmp_path, record):
    run = trained(case)
    decoder = reference(run)
    ids = random_ids(8, decoder.c.vocabulary, 65)
    cross_entropy, _ = decoder.loss(torch.tensor([ids[:-1]]), torch.tensor([ids[1:]]))
    cross_entropy.backward()
    expected = {name: g.numpy() for name, g in decoder.stored_gradients().items()}
    got = program.gradients(run.path, ids, tmp_path / "gradients.safetensors")
    worst = largest_relative(got, expected)
    assert record("gradients: relative, reference", case[0], worst) < 1e-3


def learning_rate(step: int, steps: int, peak: float, minimum: float, warmup: int) -> float:
    """Linear warm-up, then cosine to the minimum, which the last step has."""
    if step <= warmup:
        return peak * step / warmup
    turn = (step - warmup) / (steps - warmup)
    return minimum + (peak - minimum) * 0.5 * (1 + np.cos(np.pi * turn))


@pytest.mark.parametrize(
    "case", [c for c in cases() if c[1] < 2], ids=case_name
)
def test_loss_curve(case, data, tmp_path, record):
    """20 steps of AdamW with warm-up, decay, clipping and z-loss, from equal weights."""
    steps, peak, minimum, warmup, decay, clip = 20, 3e-3, 1e-4, 5, 0.1, 0.7
    c = dataclasses.replace(random_configuration(*case, data.vocabulary), z_loss=1e-3)
    # One step that moves nothing shows where a run of this seed starts.
    start = train(
        run_settings(c, data, steps=1), tmp_path / "start", optimizer={"learning_rate": 1e-30}
    )
    run = train(
        run_settings(c, data, steps),
        tmp_path / "run",
        optimizer=dict(
            learning_rate=peak,
            min_learning_rate=minimum,
            warmup_steps=warmup,
            weight_decay=decay,
            clip_norm=clip,
        ),
    )
    decoder = reference(start, torch.float32)
    matrices = [p for p in decoder.parameters() if p.dim() == 2]
    gains = [p for p in decoder.parameters() if p.dim() == 1]
    groups = [dict(params=matrices, weight_decay=decay), dict(params=gains, weight_decay=0.0)]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.95), eps=1e-8)
    ours = run.steps()
    assert len(ours) == steps
    worst = 0.0
    for line in ours:
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(line["step"], steps, peak, minimum, warmup)
        optimizer.zero_grad()
        cross_entropy, z_loss = decoder.loss(*run.sample(line["step"]))
        (cross_entropy + z_loss).backward()
        norm = torch.nn.utils.clip_grad_norm_(decoder.parameters(), clip)
        optimizer.step()
        worst = max(worst, abs(line["loss"] - cross_entropy.item()))
        assert line["gradient_norm"] == pytest.approx(norm.item(), rel=1e-3)
        assert line["learning_rate"] == pytest.approx(group["lr"], rel=1e-6)
    assert ours[-1]["loss"] < ours[0]["loss"]
    assert record("loss over 20 AdamW steps: absolute", case[0], worst) < 1e-5
