"""Both ways between Sandglass and Hugging Face transformers: import of its models, and our exports
in it."""

import zlib

import numpy as np
import pytest
import torch
import transformers

import program
from configurations import case_name, cases
from conftest import random_ids
from test_reference import largest_relative

IMPORTED = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, {}),
    "llama-tied": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"tie_word_embeddings": True, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}},
    ),
    "llama-linear-rope": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4}},
    ),
    "llama-3-rope": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e3,
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
    ),
    "olmo2": (transformers.Olmo2Config, transformers.Olmo2ForCausalLM, {}),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM, {"head_dim": 32}),
    "qwen3-tied": (
        transformers.Qwen3Config,
        transformers.Qwen3ForCausalLM,
        {"head_dim": 8, "tie_word_embeddings": True},
    ),
}


def random_model(name: str):
    """A model of transformers with weights and gains far from their defaults."""
    config_class, model_class, special = IMPORTED[name]
    torch.manual_seed(zlib.crc32(name.encode()))
    config = config_class(
        vocab_size=331,
        hidden_size=64,
        intermediate_size=136,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        attn_implementation="eager",
        # Ids of these kinds lie inside the vocabulary.
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=None,
        **special,
    )
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            else:
                parameter.normal_(0, 0.15)
    return model


def stored_gradients(model) -> dict[str, np.ndarray]:
    """Gradients of a model of transformers, packed and named as Sandglass stores them."""
    grad = {name: p.grad.numpy() for name, p in model.named_parameters()}
    post = "model.layers.0.post_feedforward_layernorm.weight" in grad
    stored = {
        "embedding": grad["model.embed_tokens.weight"],
        "final_norm": grad["model.norm.weight"],
    }
    if "lm_head.weight" in grad:
        stored["head"] = grad["lm_head.weight"]
    for i in range(model.config.num_hidden_layers):
        theirs, attention, mlp = f"model.layers.{i}", f"layers.{i}.attention", f"layers.{i}.ffn.0"

        def get(name):
            return grad[f"{theirs}.{name}.weight"]

        stored[f"{attention}.norm"] = get("post_attention_layernorm" if post else "input_layernorm")
        stored[f"{mlp}.norm"] = get(
            "post_feedforward_layernorm" if post else "post_attention_layernorm"
        )
        qkv = [get(f"self_attn.{kind}_proj") for kind in "qkv"]
        stored[f"{attention}.w_qkv"] = np.concatenate(qkv)
        stored[f"{attention}.w_o"] = get("self_attn.o_proj")
        stored[f"{mlp}.w_gate_up"] = np.concatenate([get("mlp.gate_proj"), get("mlp.up_proj")])
        stored[f"{mlp}.w_down"] = get("mlp.down_proj")
        if f"{theirs}.self_attn.q_norm.weight" in grad:
            stored[f"{attention}.q_norm"] = get("self_attn.q_norm")
            stored[f"{attention}.k_norm"] = get("self_attn.k_norm")
    return stored


@pytest.mark.parametrize("name", IMPORTED)
def test_their_directory(name, tmp_path, record):
    """A directory that transformers wrote, read in place."""
    model = random_model(name)
    saved = tmp_path / "saved"
    model.save_pretrained(saved)
    ids = random_ids(3, model.config.vocab_size)
    with torch.no_grad():
        expected = model(torch.tensor([ids])).logits[0].numpy()
    assert expected.std() > 0.5
    ours = program.logits(saved, ids, tmp_path / "ours.npy")
    difference = np.abs(ours - expected).max()
    assert record("logits: absolute, import from transformers", name, difference) < 1e-4

    ids = ids[:65]
    logits = model(torch.tensor([ids[:-1]])).logits[0]
    torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).backward()
    got = program.gradients(saved, ids, tmp_path / "gradients.safetensors")
    worst = largest_relative(got, stored_gradients(model))
    assert record("gradients: relative, import from transformers", name, worst) < 1e-3


@pytest.mark.parametrize("name", IMPORTED)
def test_import(name, tmp_path):
    """The run directory that `import` makes of it computes the same bits."""
    saved, imported = tmp_path / "saved", tmp_path / "imported"
    model = random_model(name)
    model.save_pretrained(saved)
    ids = random_ids(3, model.config.vocab_size)
    program.sandglass("import", saved, "--out", imported)
    directly = program.logits(saved, ids, tmp_path / "directly.npy")
    assert (directly == program.logits(imported, ids, tmp_path / "imported.npy")).all()


@pytest.mark.parametrize("case", cases(), ids=case_name)
def test_export(case, trained, tmp_path, record):
    run = trained(case)
    program.sandglass("export", run.path, "--to", "hf", "--out", tmp_path / "hf")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path / "hf", trust_remote_code=True, dtype=torch.float32
    )
    ids = random_ids(4, run.configuration().vocabulary)
    with torch.no_grad():
        theirs = model(torch.tensor([ids])).logits[0].numpy()
    ours = program.logits(run.path, ids, tmp_path / "logits.npy")
    difference = np.abs(theirs[:, : ours.shape[1]] - ours).max()
    assert record("logits: absolute, export to transformers", case[0], difference) < 1e-4

    # Greedy continuation through its KV cache: each token is our likeliest after the same ones, so
    # that ours from the prompt on is the same continuation. Two tokens may be as likely as each
    # other: once in a continuation, and by no more than the logits differ anyway.
    prompt = ids[:20]
    continued = model.generate(
        torch.tensor([prompt]), do_sample=False, max_new_tokens=24, min_new_tokens=24, use_cache=True
    )[0, 20:].tolist()
    again = program.logits(run.path, prompt + continued, tmp_path / "again.npy")[19:-1]
    again[:, program.end_of_text(run.path / "tokenizer.json")] = -np.inf  # as generate was told
    tied = again.argmax(-1) != continued
    gaps = again.max(-1) - again[np.arange(len(continued)), continued]
    assert record("greedy: tokens of 24 that a tie decides, transformers", case[0], tied.sum()) <= 1
    assert record("greedy: gap of such a tie, transformers", case[0], gaps.max()) <= 2 * difference
