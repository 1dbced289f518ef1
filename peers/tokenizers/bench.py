"""Throughput of one thread on 40 MB of text, beside tokenizers and tiktoken.

    peers/tokenizers/bench.py [BYTES]

Times are those of the thread that encodes, in CPU seconds, so that other work on the machine counts
for nobody. Every program gets the same documents in the same order, alternating in one run, and the
ids are compared before anything is reported. Prints a table in Markdown.
"""

import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent))
os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import tiktoken  # noqa: E402
import tokenizers  # noqa: E402

from cases import cases, ranks  # noqa: E402
from strings import real_text  # noqa: E402
from test_ids import PROGRAM  # noqa: E402

ROUNDS = 3


def seconds(action) -> tuple[float, int]:
    """CPU seconds of a call on this thread, and the number of ids that it returns."""
    begin = time.thread_time()
    count = action()
    return time.thread_time() - begin, count


def sandglass(tokenizer, corpus) -> tuple[float, int, float]:
    call = [PROGRAM, "tokenizer", "bench", "--json", "--tokenizer", tokenizer, corpus]
    done = subprocess.run(list(map(str, call)), capture_output=True, text=True, check=True)
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
    result = json.loads(done.stdout)
    return result["cpu_seconds"], result["tokens"], peak


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 40_000_000
    texts = real_text(size)
    total = sum(len(text.encode()) for text in texts)
    found = {case.name: case for case in cases()}
    paths = {name: case.path for name, case in found.items()}
    with tempfile.TemporaryDirectory() as place:
        corpus = pathlib.Path(place) / "corpus.jsonl"
        corpus.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
        print(f"{total / 1e6:.1f} MB in {len(texts)} documents; MB/s of one thread, best of {ROUNDS}\n")
        print("| tokenizer | Sandglass | tokenizers | tiktoken | times tokenizers | times tiktoken |")
        print("|---|---|---|---|---|---|")
        for name in ("cl100k", "p50k", "llama3", "o200k", "mistral-v3"):
            written = pathlib.Path(place) / f"{name}.json"
            subprocess.run(
                [PROGRAM, "tokenizer", "convert", paths[name], "--out", written],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            hugging = tokenizers.Tokenizer.from_file(str(written))
            hugging.encode_special_tokens = True

            def run_hugging():
                return sum(len(hugging.encode(t, add_special_tokens=False).ids) for t in texts)

            encoding = None
            if name != "mistral-v3":
                encoding = tiktoken.Encoding(
                    name, pat_str=found[name].pattern, mergeable_ranks=ranks(paths[name]), special_tokens={}
                )

            def run_tiktoken():
                return sum(len(encoding.encode_ordinary(t)) for t in texts)

            best = {}
            for _ in range(ROUNDS):
                for program, action in [
                    ("sandglass", lambda: sandglass(paths[name], corpus)[:2]),
                    ("tokenizers", lambda: seconds(run_hugging)),
                    ("tiktoken", lambda: seconds(run_tiktoken) if encoding else None),
                ]:
                    if result := action():
                        best[program] = min(best.get(program, result), result)
            counts = {count for _, count in best.values()}
            assert len(counts) == 1, f"the numbers of ids differ: {best}"
            rate = {program: total / 1e6 / time for program, (time, _) in best.items()}
            ours, theirs, tik = rate["sandglass"], rate["tokenizers"], rate.get("tiktoken")
            print(
                f"| {name} | {ours:.1f} | {theirs:.2f} | {f'{tik:.1f}' if tik else '-'} | "
                f"{ours / theirs:.1f} | {f'{ours / tik:.1f}' if tik else '-'} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
