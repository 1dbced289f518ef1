"""Times Sandglass's reading of a prompt and generation, in turns with llama.cpp's.

    peers/run.sh bench decode [--rounds 5] [--prompt 512] [--tokens 64] [--threads N]

The same shapes, f32 weights and keys and values in f32 on both sides; llama.cpp reads the GGUF file
that Sandglass exports, an hourglass as `deci` with a block for each sub-MLP. That the numbers agree
is what test_llama_cpp.py shows. Medians over all rounds.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import tempfile
import time

import llama_cpp
import llama_cpp_runner as llama
import numpy as np

import program
from bench_train import prepared_data

SHAPES = {
    "L12-d768-a12x64-f1x3072": "llama",
    "L12-d768-a12x64-f8x384": "hourglass",
    "L6-d256-a4x64-f1x1024": "llama",
    "L6-d256-a4x64-f4x256": "hourglass",
}


def exported(shape: str, family: str, data: pathlib.Path, place: pathlib.Path):
    """A GGUF file of a model of this shape after one short step, and its vocabulary."""
    vocabulary = len(json.loads((data / "tokenizer.json").read_text())["model"]["vocab"])
    settings = {
        "name": "bench",
        "model": {"shape": shape, "family": family, "vocabulary": vocabulary},
        "data": {"path": str(data)},
        "train": {"batch": 1, "length": 64, "tokens": 64, "eval_tokens": 64},
    }
    run_file = place / f"{shape}.toml"
    run_file.write_text(program.toml(settings))
    program.sandglass("train", run_file, "--out", place / shape)
    file = place / f"{shape}.gguf"
    program.sandglass("export", place / shape, "--to", "gguf", "--type", "f32", "--out", file)
    return file, vocabulary


def seconds(call, *arguments) -> float:
    begin = time.perf_counter()
    call(*arguments)
    return time.perf_counter() - begin


def llama_round(model: llama_cpp.Llama, ids: list[int], prompt: int) -> tuple[float, float]:
    """Tokens per second of the prompt and of those after it, one by one (median)."""
    model.reset()
    reading = seconds(model.eval, ids[:prompt])
    each = [seconds(model.eval, [token]) for token in ids[prompt:]]
    return prompt / reading, 1 / statistics.median(each)


def sandglass_round(shape: str, family: str, vocabulary: int, options) -> tuple[float, float]:
    result = json.loads(
        program.sandglass(
            *["bench", "decode", "--shape", shape, "--family", family, "--vocabulary", vocabulary],
            *["--prompt", options.prompt, "--tokens", options.tokens],
            *["--threads", options.threads, "--json"],
        )
    )
    return result["prompt_tokens_per_s"], result["tokens_per_s"]


def bench(shape: str, options, data: pathlib.Path, place: pathlib.Path) -> str:
    family = SHAPES[shape]
    file, vocabulary = exported(shape, family, data, place)
    count = options.prompt + options.tokens
    ids = np.random.default_rng(1).integers(0, vocabulary, count).tolist()
    ours, theirs = [], []
    settings = dataclasses.replace(
        llama.DEFAULT,
        cache_type=llama_cpp.GGML_TYPE_F32,
        threads=options.threads,
        all_logits=False,
    )
    with llama.loaded(file, settings, count) as model:
        llama_round(model, ids, options.prompt)
        for _ in range(options.rounds):
            ours.append(sandglass_round(shape, family, vocabulary, options))
            theirs.append(llama_round(model, ids, options.prompt))
    (our_prompt, our_decode), (their_prompt, their_decode) = (
        map(statistics.median, zip(*rounds)) for rounds in (ours, theirs)
    )
    return (
        f"| {shape} | {our_prompt:,.0f} | {their_prompt:,.0f} | {our_prompt / their_prompt:.2f} "
        f"| {our_decode:,.1f} | {their_decode:,.1f} | {our_decode / their_decode:.2f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    print(f"llama-cpp-python {llama_cpp.__version__}, {options.threads} threads, tokens/s\n")
    print("| shape | prompt | llama.cpp | ratio | decode | llama.cpp | ratio |")
    print("|---|---:|---:|---:|---:|---:|---:|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        data = prepared_data(place)
        for shape in SHAPES:
            print(bench(shape, options, data, place), flush=True)


if __name__ == "__main__":
    main()
