"""Configuration of a Sandglass model: a decoder whose layers hold one attention and K gated MLPs."""

from transformers import PretrainedConfig


class SandglassConfig(PretrainedConfig):
    """Sizes and choices, named as other decoders name them, and what is particular here:

    intermediate_sizes: widths of the K MLPs of a layer, in order.
    norm_placement: "pre", x + f(norm(x)), or "post", x + norm(f(x)).
    qk_norm: RMSNorm of queries and keys before RoPE: "none", "head" (over each head, one gain for
        all heads) or "full" (over the whole width).
    depth_scaled_norm: outputs of the pre-norms of layer l, from 1, are multiplied by 1/sqrt(l).
    rope_parameters: rope_type "default", "linear" or "llama3", rope_theta and the type's numbers.
    """

    model_type = "sandglass"
    keys_to_ignore_at_inference = ["past_key_values"]

    def __init__(
        self,
        vocab_size=256,
        hidden_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        intermediate_sizes=(32, 32),
        norm_placement="pre",
        qk_norm="none",
        depth_scaled_norm=False,
        rms_norm_eps=1e-5,
        rope_parameters=None,
        max_position_embeddings=2048,
        initializer_range=0.02,
        use_cache=True,
        tie_word_embeddings=False,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_key_value_heads = num_key_value_heads
        self.head_dim = head_dim
        self.intermediate_sizes = list(intermediate_sizes)
        self.norm_placement = norm_placement
        self.qk_norm = qk_norm
        self.depth_scaled_norm = depth_scaled_norm
        self.rms_norm_eps = rms_norm_eps
        self.rope_parameters = rope_parameters or {"rope_type": "default", "rope_theta": 10000.0}
        self.max_position_embeddings = max_position_embeddings
        self.initializer_range = initializer_range
        self.use_cache = use_cache
        super().__init__(tie_word_embeddings=tie_word_embeddings, **kwargs)
