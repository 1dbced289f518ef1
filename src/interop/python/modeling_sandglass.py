"""A Sandglass model for Hugging Face transformers: a list of residual sub-layers on one stream.

Pre-norm:   x <- x + f(RMSNorm(x))        (scaled by 1/sqrt(layer) with depth_scaled_norm)
Post-norm:  x <- x + RMSNorm(f(x))

A layer is one attention and K gated MLPs, each with a norm and a residual of its own.
Shapes: B batch, T tokens, D hidden_size, H heads, E head_dim, F MLP width, V vocabulary.
"""

import inspect
import math

import torch
from torch import nn
from torch.nn import functional as F
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import DynamicCache
from transformers.masking_utils import create_causal_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPast, CausalLMOutputWithPast
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.utils import can_return_tuple

from .configuration_sandglass import SandglassConfig

# What this version of transformers calls the keys and values of earlier tokens: "cache" in late 5.x,
# "past_key_values" before. Both are accepted as arguments.
CACHE = "cache" if "cache" in CausalLMOutputWithPast.__annotations__ else "past_key_values"


def rotary_frequencies(config, device):
    """Angle per position of each pair of channels, [E/2]; in double where the device has it."""
    rope = config.rope_parameters
    wide = torch.float32 if device.type == "mps" else torch.float64
    pairs = torch.arange(config.head_dim // 2, dtype=wide, device=device)
    frequencies = rope["rope_theta"] ** (-2.0 * pairs / config.head_dim)
    kind = rope.get("rope_type", "default")
    if kind == "linear":
        return frequencies / rope["factor"]
    if kind == "llama3":
        # Long waves are slowed by `factor`, short ones kept, those between are mixed.
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * math.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
        return frequencies * (kept + (1.0 - kept) / rope["factor"])
    if kind != "default":
        raise ValueError(f"rope_type {kind!r} is not one of default, linear, llama3")
    return frequencies


def rotate(x, cos, sin):
    """Turns channel i of a head with channel i + E/2: x [B, H, T, E], cos and sin [B, 1, T, E/2]."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def eager_attention(module, query, key, value, attention_mask, scaling, dropout=0.0, **kwargs):
    """The attention interface of transformers, spelled out: query [B, H, T, E] -> [B, T, H, E]."""
    key = key.repeat_interleave(module.num_key_value_groups, dim=1)
    value = value.repeat_interleave(module.num_key_value_groups, dim=1)
    scores = query @ key.transpose(2, 3) * scaling
    if attention_mask is not None:
        scores = scores + attention_mask[..., : key.shape[-2]]
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(query.dtype)
    weights = F.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2), weights


class SandglassRMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, x):
        wide = x.float()
        wide = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(x.dtype)


class SandglassMLP(nn.Module):
    def __init__(self, config, width):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.down_proj = nn.Linear(width, config.hidden_size, bias=False)
        self.act_fn = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act_fn(self.gate_proj(x)) * self.up_proj(x))


class SandglassAttention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.head_dim
        self.num_key_value_groups = config.num_attention_heads // config.num_key_value_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = 0.0
        self.is_causal = True
        q_width = config.num_attention_heads * self.head_dim
        kv_width = config.num_key_value_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, q_width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, kv_width, bias=False)
        self.o_proj = nn.Linear(q_width, config.hidden_size, bias=False)
        if config.qk_norm != "none":
            per_head = config.qk_norm == "head"
            eps = config.rms_norm_eps
            self.q_norm = SandglassRMSNorm(self.head_dim if per_head else q_width, eps)
            self.k_norm = SandglassRMSNorm(self.head_dim if per_head else kv_width, eps)

    def forward(self, x, position_embeddings, attention_mask=None, past_key_values=None, **kwargs):
        heads = (*x.shape[:-1], -1, self.head_dim)  # [B, T, H, E]
        query, key, value = self.q_proj(x), self.k_proj(x), self.v_proj(x).view(heads)
        if self.config.qk_norm == "full":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key = query.view(heads), key.view(heads)
        if self.config.qk_norm == "head":
            query, key = self.q_norm(query), self.k_norm(key)
        query, key, value = (part.transpose(1, 2) for part in (query, key, value))
        query, key = rotate(query, *position_embeddings), rotate(key, *position_embeddings)
        if past_key_values is not None:
            key, value = past_key_values.update(key, value, self.layer_idx)
        # vLLM looks for this very assignment and call, to put its own attention in their place.
        attend = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention
        )
        out, weights = attend(
            self, query, key, value, attention_mask, scaling=self.scaling, dropout=0.0, **kwargs
        )
        return self.o_proj(out.reshape(*x.shape[:-1], -1).contiguous()), weights


class SandglassDecoderLayer(GradientCheckpointingLayer):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.post_norm = config.norm_placement == "post"
        self.norm_scale = (layer_idx + 1) ** -0.5 if config.depth_scaled_norm else 1.0

        def norm():
            return SandglassRMSNorm(config.hidden_size, config.rms_norm_eps)

        widths = config.intermediate_sizes
        self.attention_norm = norm()
        self.self_attn = SandglassAttention(config, layer_idx)
        self.mlp_norms = nn.ModuleList(norm() for _ in widths)
        self.mlps = nn.ModuleList(SandglassMLP(config, width) for width in widths)

    def forward(self, x, **kwargs):
        x = self.add(x, self.attention_norm, lambda n: self.self_attn(n, **kwargs)[0])
        for norm, mlp in zip(self.mlp_norms, self.mlps):
            x = self.add(x, norm, mlp)
        return x

    def add(self, x, norm, sub_layer):
        if self.post_norm:
            return x + norm(sub_layer(x))
        return x + sub_layer(norm(x) * self.norm_scale)


class SandglassPreTrainedModel(PreTrainedModel):
    config_class = SandglassConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules = ["SandglassDecoderLayer"]
    _skip_keys_device_placement = [CACHE]
    _supports_attention_backend = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_flex_attn = True
    _can_compile_fullgraph = True


class SandglassModel(SandglassPreTrainedModel):
    def __init__(self, config):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            SandglassDecoderLayer(config, layer) for layer in range(config.num_hidden_layers)
        )
        self.norm = SandglassRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.gradient_checkpointing = False
        self.post_init()

    @can_return_tuple
    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        cache=None,
        past_key_values=None,
        inputs_embeds=None,
        use_cache=None,
        **kwargs,
    ):
        x = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds  # [B, T, D]
        cache = past_key_values if cache is None else cache
        use_cache = self.config.use_cache if use_cache is None else use_cache
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        if position_ids is None:
            seen = 0 if cache is None else cache.get_seq_length()
            position_ids = torch.arange(seen, seen + x.shape[1], device=x.device)[None]
        mask = self.causal_mask(x, attention_mask, position_ids, cache)
        angles = position_ids[:, None, :, None] * rotary_frequencies(self.config, x.device)
        rotation = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # [B, 1, T, E/2]
        for layer in self.layers:
            x = layer(
                x,
                position_embeddings=rotation,
                attention_mask=mask,
                past_key_values=cache,
                position_ids=position_ids,
                **kwargs,
            )
        return BaseModelOutputWithPast(last_hidden_state=self.norm(x), **{CACHE: cache})

    def causal_mask(self, x, attention_mask, position_ids, cache):
        """As the attention implementation wants it; versions name the arguments differently."""
        arguments = {
            "config": self.config,
            "inputs_embeds": x,
            "input_embeds": x,
            "attention_mask": attention_mask,
            "cache_position": position_ids[0],
            "cache": cache,
            "past_key_values": cache,
            "position_ids": position_ids,
        }
        known = inspect.signature(create_causal_mask).parameters
        return create_causal_mask(**{k: v for k, v in arguments.items() if k in known})


class SandglassForCausalLM(SandglassPreTrainedModel, GenerationMixin):
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config):
        super().__init__(config)
        self.model = SandglassModel(config)
        self.vocab_size = config.vocab_size
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    @can_return_tuple
    def forward(self, input_ids=None, labels=None, logits_to_keep=0, **kwargs):
        outputs = self.model(input_ids, **kwargs)
        kept = slice(-logits_to_keep, None) if isinstance(logits_to_keep, int) else logits_to_keep
        logits = self.lm_head(outputs.last_hidden_state[:, kept])  # [B, T, V]
        loss = None
        if labels is not None:
            loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.vocab_size)
        return CausalLMOutputWithPast(loss=loss, logits=logits, **{CACHE: getattr(outputs, CACHE)})
