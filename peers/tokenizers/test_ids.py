"""The ids of every kind of tokenizer are those of the library that it comes from.

Each is compared on 10,000 nasty strings and on 10 MB of real text; then the tokenizer.json that
Sandglass writes for it, read by Hugging Face's tokenizers, and for some the GGUF file, read by
llama.cpp.
"""

import json
import os
import pathlib
import subprocess
import sys
import unicodedata

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
from cases import (  # noqa: E402
    PROGRAM,
    cases,
    huggingface_reference,
    known_to_llama_cpp,
    llama_cpp_reference,
    random_model,
)
from strings import nasty_strings, real_text  # noqa: E402

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


# Tokenizers that `export --to gguf` writes: SentencePiece's with scores, byte-level ones by the name
# of their pattern. Mistral's later models have pieces that SentencePiece finds in place.
@pytest.mark.parametrize("case", [c for c in cases() if c.in_gguf], ids=lambda case: case.name)
def test_ids_through_llama_cpp(case, texts, tmp_path):
    exported = tmp_path / "model.gguf"
    call = [PROGRAM, "export", random_model(case.path, tmp_path), "--to", "gguf", "--out", exported]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    nfc = "give it text in NFC" in done.stderr
    assert nfc == (case.name == "qwen")
    texts = [
        text
        for text in texts
        if known_to_llama_cpp(text) and (not nfc or unicodedata.is_normalized("NFC", text))
    ]
    found = differences(encode(case.path, texts), llama_cpp_reference(exported)()(texts), texts)
    assert not found, f"{len(found)} of {len(texts)} texts differ, such as {found[:3]}"
    assert encode(exported, texts) == encode(case.path, texts)
