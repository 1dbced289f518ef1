"""vLLM on token ids; runs in vLLM's own environment.

    vllm_runner.py REQUEST.json ANSWER.npz

The request: {"models": {name: directory}, "ids": [...]}; the answer: name -> log-probabilities
[T - 1, V] of the token that follows each of ids[:-1], or what vLLM said instead.
"""

import gc
import json
import os
import sys

os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import numpy as np
from vllm import LLM, SamplingParams


def log_probabilities(directory: str, ids: list[int]) -> np.ndarray:
    model = LLM(
        directory,
        dtype="float32",
        enforce_eager=True,
        trust_remote_code=True,
        skip_tokenizer_init=True,
        max_model_len=256,
        max_num_seqs=1,
        max_logprobs=-1,
        enable_prefix_caching=False,
    )
    sampling = SamplingParams(max_tokens=1, temperature=0.0, prompt_logprobs=-1, detokenize=False)
    output = model.generate({"prompt_token_ids": ids}, sampling, use_tqdm=False)[0]
    rows = output.prompt_logprobs[1:]  # nothing precedes the first token
    answer = np.full((len(rows), max(map(len, rows))), np.nan, np.float32)
    for row, entries in zip(answer, rows):
        for token, entry in entries.items():
            row[token] = entry.logprob
    return answer


def main() -> None:
    request_path, answer_path = sys.argv[1:]
    with open(request_path) as file:
        request = json.load(file)
    answers = {}
    for name, directory in request["models"].items():
        try:
            answers[name] = log_probabilities(directory, request["ids"])
        except Exception as error:  # the others are still to be compared
            answers[name] = np.array(f"{type(error).__name__}: {error}")
        gc.collect()
    np.savez(answer_path, **answers)


if __name__ == "__main__":
    main()
