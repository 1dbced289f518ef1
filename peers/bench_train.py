"""Times training steps of Sandglass and of PyTorch on the same models, and prints a table.

    peers/run.sh bench train [--shapes SHAPE...] [--precisions f32 bf16] [--rounds 5] [--steps 4]
                             [--threads N]

PyTorch runs the model below (packed projections, scaled_dot_product_attention, fused RMSNorm and
cross-entropy) eagerly and compiled, in f32 and, where the processor has instructions for it, under
bf16 autocast, with clipping and whichever of its AdamW implementations is faster here. Before
anything is timed, three steps from equal weights on equal data must give equal losses. Then Sandglass
and every PyTorch mode take turns, so that a machine that slows down slows all of them; medians over
all rounds are printed. Memory is the largest resident set while steps ran.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import program
from program import Run
from reference_model import Configuration, rotary_frequencies

# shape, family, vocabulary, batch, length
CASES = [
    ("L12-d768-a12x64-f1x3072", "llama", 50304, 2, 512),
    ("L12-d768-a12x64-f8x384", "hourglass", 50304, 2, 512),
    ("L6-d1152-a12x64-f4x900", "hourglass", 50304, 2, 512),
    ("L6-d256-a4x64-f1x1024", "llama", 4096, 8, 256),
    ("L6-d256-a4x64-f4x256", "hourglass", 4096, 8, 256),
    ("L4-d128-a4x32-f4x64", "hourglass", 4096, 16, 256),
]
MODES = {
    f"{'compiled' if compiled else 'eager'} {precision}": dict(
        compiled=compiled, bf16=precision == "bf16"
    )
    for precision in ("f32", "bf16")
    for compiled in (False, True)
}
LEARNING_RATE, DECAY, CLIP = 1e-3, 0.1, 1.0


class FastDecoder(nn.Module):
    """A pre-norm decoder as PyTorch runs it fastest; parameters lie as Sandglass stores them."""

    def __init__(self, c: Configuration, length: int):
        super().__init__()
        self.c = c
        q_width, kv_width = c.heads * c.head_width, c.kv_heads * c.head_width
        self.split = [q_width, kv_width, kv_width]
        shapes = {"embedding": (c.padded_vocabulary, c.d_model), "final_norm": (c.d_model,)}
        if c.embeddings == "untied":
            shapes["head"] = shapes["embedding"]
        for layer in range(c.layers):
            attention = f"layers.{layer}.attention"
            shapes[f"{attention}.norm"] = (c.d_model,)
            shapes[f"{attention}.w_qkv"] = (sum(self.split), c.d_model)
            shapes[f"{attention}.w_o"] = (c.d_model, q_width)
            for i, width in enumerate(c.ffn):
                shapes[f"layers.{layer}.ffn.{i}.norm"] = (c.d_model,)
                shapes[f"layers.{layer}.ffn.{i}.w_gate_up"] = (2 * width, c.d_model)
                shapes[f"layers.{layer}.ffn.{i}.w_down"] = (c.d_model, width)
        self.w = nn.ParameterDict(
            {self.key(name): nn.Parameter(torch.randn(s) * 0.02) for name, s in shapes.items()}
        )
        angles = torch.arange(length)[:, None] * rotary_frequencies(c)
        self.register_buffer("cosines", angles.cos().float())
        self.register_buffer("sines", angles.sin().float())

    @staticmethod
    def key(name: str) -> str:
        return name.replace(".", "/")

    def load(self, weights: dict) -> None:
        with torch.no_grad():
            for name, value in weights.items():
                self.w[self.key(name)].copy_(torch.from_numpy(value))

    def normed(self, x: Tensor, name: str) -> Tensor:
        return F.rms_norm(x, (self.c.d_model,), self.w[self.key(name)], self.c.norm_epsilon)

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.w[self.key(name)])

    def rotate(self, x: Tensor) -> Tensor:
        """x: [B, heads, T, E]."""
        first, second = x.chunk(2, dim=-1)
        return torch.cat(
            [
                first * self.cosines - second * self.sines,
                second * self.cosines + first * self.sines,
            ],
            dim=-1,
        ).to(x.dtype)

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        c = self.c
        x = F.embedding(ids, self.w["embedding"])
        for layer in range(c.layers):
            name = f"layers.{layer}.attention"
            qkv = self.linear(self.normed(x, f"{name}.norm"), f"{name}.w_qkv")
            q, k, v = (
                part.unflatten(-1, (-1, c.head_width)).transpose(1, 2)
                for part in qkv.split(self.split, dim=-1)
            )
            out = F.scaled_dot_product_attention(
                self.rotate(q),
                self.rotate(k),
                v,
                is_causal=True,
                enable_gqa=c.kv_heads != c.heads,
            )
            x = x + self.linear(out.transpose(1, 2).flatten(-2), f"{name}.w_o")
            for i in range(len(c.ffn)):
                name = f"layers.{layer}.ffn.{i}"
                gate, up = self.linear(self.normed(x, f"{name}.norm"), f"{name}.w_gate_up").chunk(
                    2, dim=-1
                )
                x = x + self.linear(F.silu(gate) * up, f"{name}.w_down")
        head = "embedding" if c.embeddings == "tied" else "head"
        logits = self.linear(self.normed(x, "final_norm"), head)[..., : c.vocabulary]
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TorchTrainer:
    """One mode of PyTorch: forward, backward, clip, AdamW."""

    def __init__(self, c: Configuration, length: int, compiled: bool, bf16: bool):
        self.decoder = FastDecoder(c, length)
        self.bf16 = bf16
        # Sizes never change: compiled for these sizes alone.
        self.loss = torch.compile(self.decoder, dynamic=False) if compiled else self.decoder
        self.use("fused")

    def use(self, kind: str) -> None:
        matrices = [p for p in self.decoder.parameters() if p.dim() == 2]
        gains = [p for p in self.decoder.parameters() if p.dim() == 1]
        groups = [dict(params=matrices, weight_decay=DECAY), dict(params=gains, weight_decay=0.0)]
        self.kind = kind
        self.optimizer = torch.optim.AdamW(
            groups, lr=LEARNING_RATE, betas=(0.9, 0.95), eps=1e-8, **{kind: True}
        )

    def step(self, ids: Tensor, targets: Tensor) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.bf16):
            loss = self.loss(ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.decoder.parameters(), CLIP)
        self.optimizer.step()
        return loss.item()

    def seconds(self, ids: Tensor, targets: Tensor, steps: int) -> list[float]:
        times = []
        for _ in range(steps):
            begin = time.perf_counter()
            self.step(ids, targets)
            times.append(time.perf_counter() - begin)
        return times


def resident_peak() -> int:
    """Largest resident set since forget_peak(), in bytes."""
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("no VmHWM in /proc/self/status")


def forget_peak() -> None:
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def worker(job: dict) -> None:
    """Answers each line of standard input with a line of JSON: the seconds of some more steps."""
    torch.set_num_threads(job["threads"])
    torch.manual_seed(1)
    c = Configuration.parse(job["model"])
    trainer = TorchTrainer(c, job["length"], **MODES[job["mode"]])
    ids = torch.randint(c.vocabulary, (job["batch"], job["length"] + 1))
    step_arguments = (ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), job["steps"])
    speed = {}
    for kind in ("foreach", "fused"):
        trainer.use(kind)
        trainer.seconds(*step_arguments)
        speed[kind] = statistics.median(trainer.seconds(*step_arguments))
    trainer.use(min(speed, key=speed.get))
    trainer.seconds(*step_arguments)
    forget_peak()
    print(json.dumps({"adamw": trainer.kind}), flush=True)
    for _ in sys.stdin:
        seconds = trainer.seconds(*step_arguments)
        print(json.dumps({"seconds": seconds, "peak": resident_peak()}), flush=True)


class Worker:
    """A PyTorch mode in a process of its own, so that its memory can be told apart."""

    def __init__(self, job: dict):
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", json.dumps(job)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": str(job["threads"])},
        )
        self.seconds: list[float] = []
        self.peak = 0
        self.adamw = self.answer()["adamw"]

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit("a PyTorch process ended early: was there too little memory for it?")
        return json.loads(line)

    def round(self) -> None:
        try:
            print("go", file=self.process.stdin, flush=True)
        except BrokenPipeError:
            pass  # what follows says so
        answer = self.answer()
        self.seconds += answer["seconds"]
        self.peak = answer["peak"]

    def close(self) -> None:
        self.process.stdin.close()
        self.process.wait()


def equal_losses(case: tuple, data: pathlib.Path, place: pathlib.Path) -> float:
    """Largest difference of the loss over three steps from equal weights on equal data."""
    shape, family, vocabulary, batch, length = case
    settings = {
        "name": "bench",
        "model": {"family": family, "shape": shape, "vocabulary": vocabulary},
        "data": {"path": str(data)},
        "train": {"batch": batch, "length": length, "eval_tokens": length},
        "optimizer": {
            "learning_rate": LEARNING_RATE,
            "min_learning_rate": LEARNING_RATE,
            "warmup_steps": 0,
            "weight_decay": DECAY,
            "clip_norm": CLIP,
        },
    }

    def run(name: str, steps: int, **optimizer) -> Run:
        out, run_file = place / name, place / f"{name}.toml"
        changed = {
            "train": settings["train"] | {"tokens": steps * batch * length},
            "optimizer": settings["optimizer"] | optimizer,
        }
        run_file.write_text(program.toml(settings | changed))
        program.sandglass("train", run_file, "--out", out)
        return Run(out)

    # One step that moves nothing shows where a run of this seed starts.
    start = run("start", 1, learning_rate=1e-30, min_learning_rate=1e-30)
    ours = run("equal", 3)
    trainer = TorchTrainer(start.configuration(), length, compiled=False, bf16=False)
    trainer.decoder.load(start.weights())
    worst = 0.0
    for line in ours.steps():
        theirs = trainer.step(*ours.sample(line["step"]))
        worst = max(worst, abs(line["loss"] - theirs))
    return worst


def fast_precisions() -> list[str]:
    """The precisions that this processor has instructions for."""
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    return ["f32", "bf16"] if "avx512_bf16" in flags or "amx_bf16" in flags else ["f32"]


def prepared_data(place: pathlib.Path) -> pathlib.Path:
    """Tokens to compare losses on; timing does not depend on what they are."""
    from conftest import random_text

    text, tokenizer, data = place / "text.txt", place / "tokenizer.json", place / "data"
    text.write_text(random_text(seed=3, words=15_000))
    by_paragraph = ["--documents", "paragraph"]
    program.sandglass(
        "tokenizer", "train", "--vocabulary", 331, *by_paragraph, "--out", tokenizer, text
    )
    program.sandglass("prepare", "--tokenizer", tokenizer, *by_paragraph, "--out", data, text)
    return data


def bench(case: tuple, options, data: pathlib.Path, place: pathlib.Path) -> list[str]:
    """Lines of the table."""
    shape = case[0]
    difference = equal_losses(case, data, place)
    print(f"{shape}: losses of three steps differ by at most {difference:.1e}", file=sys.stderr)
    if difference > 1e-4:
        raise SystemExit("the losses are not equal: there is nothing to compare")
    return [line for precision in options.precisions for line in timed(case, options, precision)]


def timed(case: tuple, options, precision: str) -> list[str]:
    """Lines of one precision: all of its modes are in memory at a time."""
    shape, family, vocabulary, batch, length = case
    job = {
        "model": {"shape": shape, "vocabulary": vocabulary},
        "batch": batch,
        "length": length,
        "threads": options.threads,
        "steps": options.steps,
    }
    modes = [mode for mode in MODES if mode.split()[1] == precision]
    workers = {mode: Worker(job | {"mode": mode}) for mode in modes}
    ours: list[float] = []
    ours_peak = 0
    for _ in range(options.rounds):
        result = json.loads(
            program.sandglass(
                *["bench", "train", "--shape", shape, "--family", family],
                *["--vocabulary", vocabulary, "--batch", batch, "--length", length],
                *["--precision", precision, "--threads", options.threads],
                *["--repeats", options.steps, "--json"],
            )
        )
        ours.append(result["step_s"])
        ours_peak = max(ours_peak, result["peak_rss_bytes"] or 0)
        for each in workers.values():
            each.round()
    for each in workers.values():
        each.close()

    def row(name: str, seconds: list[float], peak: int) -> str:
        median = statistics.median(seconds)
        return (
            f"| {shape} | {name} | {median * 1e3:.1f} | {min(seconds) * 1e3:.1f} | "
            f"{batch * length / median:,.0f} | {peak / 2**20:,.0f} | "
            f"{median / statistics.median(ours):.2f} |"
        )

    return [row(f"Sandglass {precision}", ours, ours_peak)] + [
        row(f"PyTorch {mode}, {each.adamw} AdamW", each.seconds, each.peak)
        for mode, each in workers.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    shapes = [case[0] for case in CASES]
    parser.add_argument("--shapes", nargs="+", default=shapes, choices=shapes)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=4, help="timed steps in a round")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument(
        "--precisions", nargs="+", default=fast_precisions(), choices=["f32", "bf16"]
    )
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(json.loads(options.worker))
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        data = prepared_data(pathlib.Path(folder))
        print(f"torch {torch.__version__}, {options.threads} threads\n")
        print("| shape | program | median ms | best ms | tokens/s | peak MiB | of Sandglass |")
        print("|---|---|---:|---:|---:|---:|---:|", flush=True)
        for i, case in enumerate(case for case in CASES if case[0] in options.shapes):
            place = pathlib.Path(folder) / str(i)
            place.mkdir()
            print(*bench(case, options, data, place), sep="\n", flush=True)


if __name__ == "__main__":
    main()
