"""The ids of every kind of tokenizer are those of the library that it comes from.

Each is compared on 10,000 nasty strings and on 10 MB of real text; then the tokenizer.json that
Sandglass writes for it, read by Hugging Face's tokenizers, and the text that the ids decode to.
"""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cases import cases, huggingface_reference  # noqa: E402
from strings import nasty_strings, real_text  # noqa: E402

PROGRAM = os.environ.get(
    "SANDGLASS", str(pathlib.Path(__file__).resolve().parents[2] / "build/release/sandglass")
)
STRINGS = int(os.environ.get("SANDGLASS_PEER_STRINGS", 10_000))
REAL_BYTES = int(os.environ.get("SANDGLASS_PEER_BYTES", 10_000_000))


def lines(*arguments, values: list) -> list:
    """What the program answers to one line of JSON for each value."""
    text = "".join(json.dumps(value) + "\n" for value in values)
    call = [PROGRAM, "tokenizer", *map(str, arguments), "--jsonl", "-"]
    done = subprocess.run(call, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.split("\n")[:-1]]
    assert len(answers) == len(values)
    return answers


def encode(tokenizer, texts: list[str]) -> list[list[int]]:
    return lines("encode", "--tokenizer", tokenizer, "--bos", "none", values=texts)


@pytest.fixture(scope="session")
def texts() -> list[str]:
    return nasty_strings(STRINGS, seed=11) + real_text(REAL_BYTES)


def differences(ours, theirs, texts):
    return [
        (text[:200], a[:40], b[:40]) for a, b, text in zip(ours, theirs, texts, strict=True) if a != b
    ]


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_ids(case, texts, tmp_path):
    texts = [text for text in texts if case.comparable(text)]
    ours = encode(case.path, texts)
    found = differences(ours, case.reference()(texts), texts)
    assert not found, f"{len(found)} of {len(texts)} texts differ, such as {found[:3]}"

    written = tmp_path / "tokenizer.json"
    subprocess.run([PROGRAM, "tokenizer", "convert", case.path, "--out", written], check=True)
    found = differences(ours, huggingface_reference(written)()(texts), texts)
    assert not found, f"as tokenizer.json {len(found)} texts differ, such as {found[:3]}"
    assert encode(written, texts) == ours
