"""Writes the golden files that src/interop/golden_test.cc checks: peers/run.sh golden

src/interop/testdata/golden/NAME/ holds a tiny model, golden.json (what made it, token ids, and the
losses of a training run), and expected.safetensors (logits, and gradients by Sandglass's names).
The models lie there as other programs store them:

    llama, qwen3, olmo2       directories that transformers wrote; its logits and gradients
    hourglass...              SandglassForCausalLM directories; those of reference_model.py
    NAME.gguf                 files written with the gguf package; logits of llama.cpp
"""

import json
import math
import pathlib
import platform
import re
import shutil
import zlib

import gguf
import llama_cpp
import llama_cpp_runner as llama
import numpy as np
import torch
import transformers
from safetensors.torch import save_file

import program
from reference_model import Configuration, Decoder
from test_transformers import stored_gradients

PLACE = program.REPOSITORY / "src/interop/testdata/golden"
VOCABULARY, LENGTH = 40, 48
CURVE_STEPS, CURVE_BATCH, CURVE_LENGTH = 20, 2, 16
SIZES = dict(
    layers=2, d_model=16, heads=2, head_width=8, kv_heads=1, ffn=(24,), vocabulary=VOCABULARY
)
HOURGLASSES = {
    "hourglass": dict(ffn=(8, 8, 8), embeddings="tied"),
    "hourglass-head-norm": dict(
        ffn=(8, 16), heads=3, kv_heads=3, qk_norm="head", depth_scaled_norm=True
    ),
    "hourglass-full-norm": dict(
        ffn=(16, 8), qk_norm="full", rope_scaling={"kind": "linear", "factor": 4.0}
    ),
    "hourglass-post-norm": dict(
        ffn=(8, 8),
        qk_norm="full",
        norm="post",
        rope_scaling={
            "kind": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position": 64,
        },
    ),
}
GGUFS = {
    "llama": dict(),
    "qwen3": dict(head_width=12, qk_norm="head", embeddings="tied"),
    "olmo2": dict(qk_norm="full", norm="post"),
    "deci": dict(ffn=(8, 16, 8), head_width=4),
}
CURVE = dict(
    steps=CURVE_STEPS,
    learning_rate=3e-3,
    beta1=0.9,
    beta2=0.95,
    epsilon=1e-8,
    weight_decay=0.1,
    clip_norm=0.7,
    z_loss=1e-3,
)


def randomize(model) -> None:
    """Weights in f32 with logits of order one; gains about 1."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 1.5 / math.sqrt(parameter.shape[-1]))


def random_ids(seed: int, *shape) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, VOCABULARY, shape)


def train(decoder: Decoder, rows: np.ndarray) -> list[float]:
    """Cross-entropy of each step of AdamW at a constant rate, on rows [steps, B, T + 1]."""
    matrices = [p for p in decoder.parameters() if p.dim() == 2]
    gains = [p for p in decoder.parameters() if p.dim() == 1]
    optimizer = torch.optim.AdamW(
        [
            dict(params=matrices, weight_decay=CURVE["weight_decay"]),
            dict(params=gains, weight_decay=0.0),
        ],
        lr=CURVE["learning_rate"],
        betas=(CURVE["beta1"], CURVE["beta2"]),
        eps=CURVE["epsilon"],
    )
    losses = []
    for step in torch.from_numpy(rows):
        optimizer.zero_grad()
        cross_entropy, z_loss = decoder.loss(step[:, :-1], step[:, 1:])
        (cross_entropy + z_loss).backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), CURVE["clip_norm"])
        optimizer.step()
        losses.append(cross_entropy.item())
    return losses


def write_golden(name: str, made_by: dict, expected: dict, facts: dict) -> None:
    tensors = {key: value.to(torch.float32).contiguous() for key, value in expected.items()}
    save_file(tensors, PLACE / name / "expected.safetensors")
    versions = {"python": platform.python_version(), "torch": torch.__version__, **made_by}
    golden = {"command": "peers/run.sh golden", "versions": versions, **facts}
    text = json.dumps(golden, indent=1)
    (PLACE / name / "golden.json").write_text(compact_lists(text) + "\n")


def compact_lists(text: str) -> str:
    """Lists of numbers on one line each."""
    return re.sub(r"\[\s*([-\d.e+,\s]+?)\s*\]", lambda m: "[" + " ".join(m[1].split()) + "]", text)


def transformers_golden(name: str, config_class, model_class, special: dict) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    config = config_class(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=64,
        attn_implementation="eager",
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **special,
    )
    model = model_class(config).eval()
    randomize(model)
    model.save_pretrained(PLACE / name)
    (PLACE / name / "generation_config.json").unlink(missing_ok=True)
    model.double()
    ids = random_ids(1, LENGTH)
    logits = model(torch.from_numpy(ids[None])).logits[0]
    torch.nn.functional.cross_entropy(logits[:-1], torch.from_numpy(ids[1:])).backward()
    gradients = {
        f"gradient.{key}": torch.from_numpy(value) for key, value in stored_gradients(model).items()
    }
    write_golden(
        name,
        {"transformers": transformers.__version__},
        {"logits": logits.detach(), **gradients},
        {"logits_tolerance": 1e-4, "gradients_tolerance": 1e-3, "ids": ids.tolist()},
    )


def hf_config(c: Configuration) -> dict:
    """config.json of our modelling file."""
    rope = {"rope_type": "default", "rope_theta": c.rope_theta}
    if c.rope_scaling:
        rope |= {k: v for k, v in c.rope_scaling.items() if k != "kind"}
        rope["rope_type"] = c.rope_scaling["kind"]
        if "original_max_position" in rope:
            rope["original_max_position_embeddings"] = rope.pop("original_max_position")
    return {
        "architectures": ["SandglassForCausalLM"],
        "model_type": "sandglass",
        "dtype": "float32",
        "vocab_size": c.padded_vocabulary,
        "hidden_size": c.d_model,
        "num_hidden_layers": c.layers,
        "num_attention_heads": c.heads,
        "num_key_value_heads": c.kv_heads,
        "head_dim": c.head_width,
        "intermediate_sizes": list(c.ffn),
        "norm_placement": c.norm,
        "qk_norm": c.qk_norm,
        "depth_scaled_norm": c.depth_scaled_norm,
        "rms_norm_eps": c.norm_epsilon,
        "rope_parameters": rope,
        "max_position_embeddings": 64,
        "tie_word_embeddings": c.embeddings == "tied",
    }


def hf_tensors(decoder: Decoder) -> dict[str, torch.Tensor]:
    """Weights under the names of our modelling file."""
    tensors = {
        "model.embed_tokens.weight": decoder.embedding.weight,
        "model.norm.weight": decoder.final_norm.gain,
    }
    if decoder.c.embeddings == "untied":
        tensors["lm_head.weight"] = decoder.head.weight
    for layer, attention in enumerate(decoder.attentions):
        name = f"model.layers.{layer}"
        tensors[f"{name}.attention_norm.weight"] = decoder.attention_norms[layer].gain
        for kind in "qkvo":
            tensors[f"{name}.self_attn.{kind}_proj.weight"] = getattr(attention, kind).weight
        if decoder.c.qk_norm != "none":
            tensors[f"{name}.self_attn.q_norm.weight"] = attention.q_norm.gain
            tensors[f"{name}.self_attn.k_norm.weight"] = attention.k_norm.gain
        for i, mlp in enumerate(decoder.mlps[layer]):
            tensors[f"{name}.mlp_norms.{i}.weight"] = decoder.mlp_norms[layer][i].gain
            for kind in ("gate", "up", "down"):
                tensors[f"{name}.mlps.{i}.{kind}_proj.weight"] = getattr(mlp, kind).weight
    return tensors


def hourglass_golden(name: str, choices: dict) -> None:
    torch.manual_seed(zlib.crc32(name.encode()))
    c = Configuration(**{**SIZES, "z_loss": CURVE["z_loss"], **choices})
    decoder = Decoder(c)
    randomize(decoder)
    (PLACE / name / "config.json").write_text(json.dumps(hf_config(c), indent=2) + "\n")
    tensors = {key: value.detach().clone() for key, value in hf_tensors(decoder).items()}
    save_file(tensors, PLACE / name / "model.safetensors", metadata={"format": "pt"})

    decoder.double()
    ids = random_ids(1, LENGTH)
    logits = decoder(torch.from_numpy(ids[None]))[0]
    torch.nn.functional.cross_entropy(logits[:-1], torch.from_numpy(ids[1:])).backward()
    gradients = {f"gradient.{key}": value for key, value in decoder.stored_gradients().items()}
    rows = random_ids(2, CURVE_STEPS, CURVE_BATCH, CURVE_LENGTH + 1)
    losses = train(decoder, rows)
    write_golden(
        name,
        {},
        {"logits": logits.detach(), **gradients},
        {
            "logits_tolerance": 1e-4,
            "gradients_tolerance": 1e-3,
            "ids": ids.tolist(),
            "curve": {**CURVE, "tolerance": 1e-4, "losses": losses, "rows": rows.tolist()},
        },
    )


def interleaved(rows: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of W_q or W_k for RoPE that turns neighbours instead of halves: [heads*E, D]."""
    return rows.unflatten(0, (heads, 2, -1)).transpose(1, 2).flatten(0, 2)


def write_gguf(path: pathlib.Path, architecture: str, decoder: Decoder) -> None:
    """The model as llama.cpp reads it, in F32, without a tokenizer."""
    c = decoder.c
    sub_mlps = len(c.ffn)
    blocks = c.layers * sub_mlps
    w = gguf.GGUFWriter(path, architecture)
    w.add_context_length(64)
    w.add_embedding_length(c.d_model)
    w.add_block_count(blocks)
    w.add_vocab_size(c.vocabulary)
    per_block = architecture == "deci"
    attends = [block % sub_mlps == 0 for block in range(blocks)]
    w.add_head_count([c.heads * a for a in attends] if per_block else c.heads)
    w.add_head_count_kv([c.kv_heads * a for a in attends] if per_block else c.kv_heads)
    w.add_feed_forward_length(list(c.ffn) * c.layers if per_block else c.ffn[0])
    w.add_key_length(c.head_width)
    w.add_value_length(c.head_width)
    w.add_rope_dimension_count(c.head_width)
    w.add_rope_freq_base(c.rope_theta)
    w.add_layer_norm_rms_eps(c.norm_epsilon)
    w.add_file_type(gguf.LlamaFileType.ALL_F32)
    w.add_tokenizer_model("none")

    def add(name: str, value: torch.Tensor) -> None:
        w.add_tensor(f"{name}.weight", value.detach().float().contiguous().numpy())

    add("token_embd", decoder.embedding.weight)
    add("output_norm", decoder.final_norm.gain)
    if c.embeddings == "untied":
        add("output", decoder.head.weight)
    interleaves = architecture in ("llama", "deci")
    for block in range(blocks):
        layer, i = divmod(block, sub_mlps)
        name, attention, mlp = f"blk.{block}", decoder.attentions[layer], decoder.mlps[layer][i]
        if i == 0:
            q, k = attention.q.weight, attention.k.weight
            if interleaves:
                q, k = interleaved(q, c.heads), interleaved(k, c.kv_heads)
            post = c.norm == "post"
            add(f"{name}.{'post_attention_norm' if post else 'attn_norm'}", decoder.attention_norms[layer].gain)
            add(f"{name}.attn_q", q)
            add(f"{name}.attn_k", k)
            add(f"{name}.attn_v", attention.v.weight)
            add(f"{name}.attn_output", attention.o.weight)
            if c.qk_norm != "none":
                add(f"{name}.attn_q_norm", attention.q_norm.gain)
                add(f"{name}.attn_k_norm", attention.k_norm.gain)
        add(f"{name}.{'post_ffw_norm' if c.norm == 'post' else 'ffn_norm'}", decoder.mlp_norms[layer][i].gain)
        add(f"{name}.ffn_gate", mlp.gate.weight)
        add(f"{name}.ffn_up", mlp.up.weight)
        add(f"{name}.ffn_down", mlp.down.weight)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def gguf_golden(architecture: str, choices: dict) -> None:
    torch.manual_seed(zlib.crc32(architecture.encode()))
    decoder = Decoder(Configuration(**{**SIZES, **choices}))
    randomize(decoder)
    name = f"{architecture}.gguf"
    path = PLACE / name / "model.gguf"
    write_gguf(path, architecture, decoder)
    ids = random_ids(1, LENGTH)
    logits = llama.logits(path, ids.tolist(), llama.EXACT)
    with torch.no_grad():
        difference = np.abs(decoder(torch.from_numpy(ids[None]))[0].numpy() - logits).max()
    print(f"{name}: llama.cpp and the reference differ by {difference:.1e}")
    assert difference < 1e-4
    prompt = ids[:8].tolist()
    write_golden(
        name,
        {"llama_cpp_python": llama_cpp.__version__},
        {"logits": torch.from_numpy(logits)},
        {
            "logits_tolerance": 1e-4,
            "ids": ids.tolist(),
            "greedy": llama.greedy(path, prompt, LENGTH - 8),
        },
    )


def main() -> None:
    torch.set_num_threads(1)
    shutil.rmtree(PLACE, ignore_errors=True)
    conventional = {
        "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
        "qwen3": (
            transformers.Qwen3Config,
            transformers.Qwen3ForCausalLM,
            {"head_dim": 12, "tie_word_embeddings": True},
        ),
        "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM, {}),
    }
    for name in [*conventional, *HOURGLASSES, *(f"{name}.gguf" for name in GGUFS)]:
        (PLACE / name).mkdir(parents=True)
    for name, classes in conventional.items():
        transformers_golden(name, *classes)
    for name, choices in HOURGLASSES.items():
        hourglass_golden(name, choices)
    for name, choices in GGUFS.items():
        gguf_golden(name, choices)
    for path in PLACE.rglob("*.safetensors"):
        path.chmod(0o644)


if __name__ == "__main__":
    main()
