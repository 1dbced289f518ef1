"""A decoder written from the equations, in PyTorch.

    x <- x + Attention(norm(x));   for i in 1..K:  x <- x + MLP_i(norm_i(x))

with MLP(n) = W_down (silu(W_gate n) * W_up n), as "Revisiting the Shape Convention of Transformer
Language Models" (arXiv 2602.06471) has it; with the norm after the sub-layer it is OLMo-2. Nothing
here knows how Sandglass computes; only the names and the packing of the stored weights are shared.
Axes: B batch, T time, D d_model, H heads, KV key-value heads, E head width, V vocabulary.
"""

import dataclasses
import math
import re

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclasses.dataclass(frozen=True)
class Configuration:
    """The sizes and choices of a model; names and meanings are those of a run file's [model]."""

    layers: int
    d_model: int
    heads: int
    head_width: int
    kv_heads: int
    ffn: tuple[int, ...]
    vocabulary: int
    vocabulary_multiple: int = 1
    norm: str = "pre"
    qk_norm: str = "none"
    rope_theta: float = 1e4
    rope_scaling: dict | None = None
    norm_epsilon: float = 1e-5
    embeddings: str = "untied"
    depth_scaled_norm: bool = False
    z_loss: float = 0.0

    @property
    def padded_vocabulary(self) -> int:
        return -(-self.vocabulary // self.vocabulary_multiple) * self.vocabulary_multiple

    @property
    def shape(self) -> str:
        """The shape in Sandglass's notation."""
        widths = ",".join(map(str, self.ffn))
        text = f"L{self.layers}-d{self.d_model}-a{self.heads}x{self.head_width}-f{widths}"
        return text if self.kv_heads == self.heads else f"{text}-kv{self.kv_heads}"

    @staticmethod
    def parse(model: dict) -> "Configuration":
        """From the [model] table of a resolved run file."""
        parts = {m[1]: m[2] for m in re.finditer(r"([a-zL]+)([\dx,]+)(?:-|$)", model["shape"])}
        heads, head_width = map(int, parts["a"].split("x"))
        ffn = []
        for part in parts["f"].split(","):
            count, _, width = part.rpartition("x")
            ffn += [int(width)] * int(count or 1)
        known = {field.name for field in dataclasses.fields(Configuration)}
        return Configuration(
            layers=int(parts["L"]),
            d_model=int(parts["d"]),
            heads=heads,
            head_width=head_width,
            kv_heads=int(parts.get("kv", heads)),
            ffn=tuple(ffn),
            **{key: value for key, value in model.items() if key in known},
        )


class RmsNorm(nn.Module):
    """gain * x / sqrt(mean(x^2) + epsilon) over the last axis."""

    def __init__(self, width: int, epsilon: float):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / torch.sqrt(x.square().mean(-1, keepdim=True) + self.epsilon)


def rotary_frequencies(c: Configuration) -> Tensor:
    """Radians per position of each pair, [E/2], in double precision."""
    pairs = c.head_width // 2
    frequency = c.rope_theta ** (-torch.arange(pairs, dtype=torch.float64) / pairs)
    scaling = c.rope_scaling
    if scaling is None:
        return frequency
    if scaling["kind"] == "linear":
        return frequency / scaling["factor"]
    # llama3: long waves are stretched, short ones kept, those between blended linearly in the
    # number of turns that they make within the original context.
    turns = scaling["original_max_position"] * frequency / (2 * math.pi)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequency * (kept + (1 - kept) / scaling["factor"])


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Turns the pair (x[i], x[i + E/2]) by angles[t, i]. x: [B, T, heads, E], angles: [T, E/2]."""
    first, second = x.chunk(2, dim=-1)
    turned = torch.complex(first, second) * torch.polar(torch.ones_like(angles), angles)[:, None, :]
    return torch.cat([turned.real, turned.imag], dim=-1)


class Attention(nn.Module):
    def __init__(self, c: Configuration):
        super().__init__()
        self.c = c
        q_width, kv_width = c.heads * c.head_width, c.kv_heads * c.head_width
        self.q = nn.Linear(c.d_model, q_width, bias=False)
        self.k = nn.Linear(c.d_model, kv_width, bias=False)
        self.v = nn.Linear(c.d_model, kv_width, bias=False)
        self.o = nn.Linear(q_width, c.d_model, bias=False)
        if c.qk_norm != "none":
            per_head = c.qk_norm == "head"
            self.q_norm = RmsNorm(c.head_width if per_head else q_width, c.norm_epsilon)
            self.k_norm = RmsNorm(c.head_width if per_head else kv_width, c.norm_epsilon)

    def queries_keys_values(self, n: Tensor, angles: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[B, T, D] -> [B, T, H, E], [B, T, H, E], [B, T, H, E]; key-value heads are repeated."""
        c = self.c
        q, k, v = self.q(n), self.k(n), self.v(n)
        if c.qk_norm == "full":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = (y.unflatten(-1, (-1, c.head_width)) for y in (q, k, v))
        if c.qk_norm == "head":
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = rotate(q, angles), rotate(k, angles)
        group = c.heads // c.kv_heads
        return q, k.repeat_interleave(group, dim=2), v.repeat_interleave(group, dim=2)

    def forward(self, n: Tensor, angles: Tensor) -> Tensor:
        q, k, v = self.queries_keys_values(n, angles)
        scores = torch.einsum("bthe,bshe->bhts", q, k) / math.sqrt(self.c.head_width)
        time = torch.arange(n.shape[1])
        scores = scores.masked_fill(time[None, :] > time[:, None], -torch.inf)
        return self.o(torch.einsum("bhts,bshe->bthe", scores.softmax(-1), v).flatten(-2))


class GatedMlp(nn.Module):
    def __init__(self, d_model: int, width: int):
        super().__init__()
        self.gate = nn.Linear(d_model, width, bias=False)
        self.up = nn.Linear(d_model, width, bias=False)
        self.down = nn.Linear(width, d_model, bias=False)

    def forward(self, n: Tensor) -> Tensor:
        return self.down(F.silu(self.gate(n)) * self.up(n))


class Decoder(nn.Module):
    """ids [B, T] -> logits [B, T, V]."""

    attention_kind: type[Attention] = Attention

    def __init__(self, c: Configuration):
        super().__init__()
        self.c = c
        self.embedding = nn.Embedding(c.padded_vocabulary, c.d_model)
        self.attentions = nn.ModuleList(self.attention_kind(c) for _ in range(c.layers))
        self.mlps = nn.ModuleList(
            nn.ModuleList(GatedMlp(c.d_model, width) for width in c.ffn) for _ in range(c.layers)
        )
        self.attention_norms = nn.ModuleList(
            RmsNorm(c.d_model, c.norm_epsilon) for _ in range(c.layers)
        )
        self.mlp_norms = nn.ModuleList(
            nn.ModuleList(RmsNorm(c.d_model, c.norm_epsilon) for _ in c.ffn)
            for _ in range(c.layers)
        )
        self.final_norm = RmsNorm(c.d_model, c.norm_epsilon)
        if c.embeddings == "untied":
            self.head = nn.Linear(c.d_model, c.padded_vocabulary, bias=False)
        self.frequencies = rotary_frequencies(c)

    def head_weight(self) -> Tensor:
        return self.embedding.weight if self.c.embeddings == "tied" else self.head.weight

    def forward(self, ids: Tensor) -> Tensor:
        time = torch.arange(ids.shape[1], dtype=torch.float64)
        angles = (time[:, None] * self.frequencies).to(self.embedding.weight.dtype)
        x = self.embedding(ids)
        for layer in range(self.c.layers):
            scale = (layer + 1) ** -0.5 if self.c.depth_scaled_norm else 1.0

            def add(x, sub_layer, norm, *inputs):
                if self.c.norm == "pre":
                    return x + sub_layer(scale * norm(x), *inputs)
                return x + norm(sub_layer(x, *inputs))

            x = add(x, self.attentions[layer], self.attention_norms[layer], angles)
            for mlp, norm in zip(self.mlps[layer], self.mlp_norms[layer]):
                x = add(x, mlp, norm)
        return F.linear(self.final_norm(x), self.head_weight()[: self.c.vocabulary])

    def loss(self, ids: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Mean cross-entropy in nats, and the z-loss beside it."""
        logits = self(ids).flatten(0, 1)
        cross_entropy = F.cross_entropy(logits, targets.flatten())
        return cross_entropy, self.c.z_loss * logits.logsumexp(-1).square().mean()

    def stored_parameters(self) -> dict[str, list[nn.Parameter]]:
        """Sandglass's name of each stored matrix, and the parameters packed in it from top down."""
        stored = {"embedding": [self.embedding.weight], "final_norm": [self.final_norm.gain]}
        if self.c.embeddings == "untied":
            stored["head"] = [self.head.weight]
        for layer in range(self.c.layers):
            attention, name = self.attentions[layer], f"layers.{layer}.attention"
            stored[f"{name}.norm"] = [self.attention_norms[layer].gain]
            stored[f"{name}.w_qkv"] = [attention.q.weight, attention.k.weight, attention.v.weight]
            stored[f"{name}.w_o"] = [attention.o.weight]
            if self.c.qk_norm != "none":
                stored[f"{name}.q_norm"] = [attention.q_norm.gain]
                stored[f"{name}.k_norm"] = [attention.k_norm.gain]
            for i, mlp in enumerate(self.mlps[layer]):
                name = f"layers.{layer}.ffn.{i}"
                stored[f"{name}.norm"] = [self.mlp_norms[layer][i].gain]
                stored[f"{name}.w_gate_up"] = [mlp.gate.weight, mlp.up.weight]
                stored[f"{name}.w_down"] = [mlp.down.weight]
        return stored

    def load(self, weights: dict[str, Tensor]) -> None:
        """Takes over stored weights; every one must be known, and every parameter given."""
        stored = self.stored_parameters()
        if set(stored) != set(weights):
            raise ValueError(f"stored weights differ in {sorted(set(stored) ^ set(weights))}")
        with torch.no_grad():
            for name, parameters in stored.items():
                pieces = weights[name].split([len(p) for p in parameters])
                for parameter, piece in zip(parameters, pieces, strict=True):
                    parameter.copy_(piece.reshape(parameter.shape))

    def stored_gradients(self) -> dict[str, Tensor]:
        """Gradients in the layout of the stored weights."""
        return {
            name: torch.cat([parameter.grad for parameter in parameters])
            for name, parameters in self.stored_parameters().items()
        }
