"""Added tokens with every combination of flags, in every kind of tokenizer, beside `tokenizers`."""

import json
import pathlib
import random

import pytest
import tokenizers
from strings import nasty_strings
from test_ids import STRINGS, differences, lines

DATA = pathlib.Path(__file__).resolve().parents[2] / "src/data/testdata"
MARK = "\u2581"
METASPACE = {"type": "Metaspace", "replacement": MARK}
KINDS = {
    "byte-level": ("cl100k", {}),
    "nfc": ("cl100k", {"normalizer": {"type": "NFC"}}),
    "nfkc": ("cl100k", {"normalizer": {"type": "NFKC"}}),
    "llama2": ("byte_fallback", {}),
    "metaspace-always": (
        "byte_fallback",
        {"normalizer": None, "pre_tokenizer": METASPACE | {"prepend_scheme": "always", "split": True}},
    ),
    "metaspace-first": (
        "byte_fallback",
        {"normalizer": None, "pre_tokenizer": METASPACE | {"prepend_scheme": "first", "split": False}},
    ),
}
NAMES = ["<a>", "<a>b", "b<a", "word", "wo", "a b", "  ", "\n", MARK, f"the{MARK}x", "é", "\u212b", "ﬁn", "_", "1"]
AROUND = ["", " ", "  ", "\t", "\n ", "\u00a0", "\u3000", "x", "_", "é", "\u0301", MARK, "½", "\u24d0", "\u200d", "'"]


def added_tokens(draw: random.Random, vocabulary: dict[str, int]) -> list[dict]:
    """Eight that are not in the vocabulary yet."""
    flags = ["single_word", "lstrip", "rstrip", "normalized", "special"]
    names = draw.sample([name for name in NAMES if name not in vocabulary], 8)
    first = len(vocabulary)
    return [
        {"id": first + i, "content": name} | {flag: draw.random() < 0.5 for flag in flags}
        for i, name in enumerate(names)
    ]


def texts(draw: random.Random, count: int) -> list[str]:
    """Names with what matters around them, and any other text."""
    made = nasty_strings(count // 4, seed=draw.randrange(1000))
    while len(made) < count:
        parts = [draw.choice(NAMES if draw.random() < 0.6 else AROUND) for _ in range(draw.randint(1, 9))]
        made.append("".join(parts))
    return made


def encode(reference: tokenizers.Tokenizer, text: str) -> list[int] | None:
    """None where `tokenizers` panics: a name with lstrip that lies in what another swallowed."""
    try:
        return reference.encode(text, add_special_tokens=False).ids
    except BaseException as panic:  # PyO3's PanicException is no Exception
        if type(panic).__name__ != "PanicException":
            raise
        return None


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_flags(kind, seed, tmp_path):
    base, changes = KINDS[kind]
    draw = random.Random(f"{kind} {seed}")
    file = json.loads((DATA / f"{base}.json").read_text()) | changes
    file["added_tokens"] += added_tokens(draw, file["model"]["vocab"])
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(file))
    reference = tokenizers.Tokenizer.from_file(str(path))
    samples = texts(draw, STRINGS)
    for special, as_text in (("parse", False), ("text", True)):
        reference.encode_special_tokens = as_text
        answered = [(text, ids) for text in samples if (ids := encode(reference, text)) is not None]
        assert len(answered) > 0.9 * len(samples)
        known, theirs = zip(*answered, strict=True)
        call = ["encode", "--tokenizer", path, "--bos", "none", "--special", special]
        found = differences(lines(*call, values=known), theirs, known)
        assert not found, f"{special}: {len(found)} of {len(known)} differ, such as {found[:3]}"
