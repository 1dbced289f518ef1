"""Random small models of every family, the same at every call."""

import random

from reference_model import Configuration

# What a family fixes; the rest is drawn. "sub_mlps" is the range of K.
FAMILIES = {
    "llama": dict(sub_mlps=(1, 1)),
    "qwen3": dict(sub_mlps=(1, 1), qk_norm="head"),
    "olmo2": dict(sub_mlps=(1, 1), qk_norm="full", norm="post"),
    "hourglass": dict(sub_mlps=(2, 4)),
    "hourglass-head-norm": dict(sub_mlps=(2, 4), qk_norm="head"),
    "hourglass-full-norm": dict(sub_mlps=(2, 4), qk_norm="full"),
    "hourglass-post-norm": dict(sub_mlps=(2, 4), qk_norm="full", norm="post"),
}
PER_FAMILY = 6
LINEAR_ROPE = {"kind": "linear", "factor": 4.0}
LLAMA3_ROPE = {
    "kind": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position": 64,
}


def random_configuration(family: str, index: int, vocabulary: int) -> Configuration:
    """Configuration `index` of a family.

    Even ones have tied embeddings and a padded vocabulary. 2 and 3 have heads of a width that
    vLLM's CPU attention takes; 0 and 1 of olmo2 an attention as wide as the stream, which llama.cpp
    asks of that family. 4 has linear RoPE scaling and, with pre-norm, norms scaled by depth; 5 has
    the RoPE scaling of Llama 3.
    """
    draw = random.Random(f"{family}/{index}")
    fixed = dict(FAMILIES[family])
    kv_heads = draw.choice([1, 2, 3])
    heads = kv_heads * draw.choice([1, 2, 4])
    sub_mlps = draw.randint(*fixed.pop("sub_mlps"))
    head_width = draw.choice([8, 16, 32]) if index not in (2, 3) else 32
    d_model = draw.choice([40, 64, 72, 96])
    if family == "olmo2" and index < 2:
        d_model = heads * head_width
    widest = d_model if sub_mlps > 1 else 3 * d_model
    return Configuration(
        layers=draw.randint(2, 3),
        d_model=d_model,
        heads=heads,
        head_width=head_width,
        kv_heads=kv_heads,
        ffn=tuple(draw.randrange(8, widest, 8) for _ in range(sub_mlps)),
        vocabulary=vocabulary,
        embeddings=["tied", "untied"][index % 2],
        vocabulary_multiple=[64, 1][index % 2],
        rope_theta=draw.choice([1e4, 5e5]),
        norm_epsilon=draw.choice([1e-5, 1e-6]),
        rope_scaling={4: LINEAR_ROPE, 5: LLAMA3_ROPE}.get(index),
        depth_scaled_norm=index == 4 and fixed.get("norm", "pre") == "pre",
        **fixed,
    )


def cases(families=FAMILIES) -> list[tuple[str, int]]:
    return [(family, index) for family in families for index in range(PER_FAMILY)]


def case_name(case: tuple[str, int]) -> str:
    return f"{case[0]}-{case[1]}"
