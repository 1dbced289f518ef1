"""Configuration of a model whose blocks differ: which have attention, and how wide each MLP is.

vLLM runs such models itself, as DeciLMForCausalLM; it reads the blocks as attributes.
"""

from transformers import PretrainedConfig


class Block(dict):
    """A JSON object whose entries are attributes as well."""

    def __init__(self, entries):
        super().__init__(
            {k: Block(v) if isinstance(v, dict) else v for k, v in dict(entries).items()}
        )

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class NemotronNasConfig(PretrainedConfig):
    model_type = "nemotron-nas"

    def __init__(
        self, block_configs=(), max_position_embeddings=2048, rope_parameters=None, **kwargs
    ):
        self.block_configs = [Block(block) for block in block_configs]
        self.max_position_embeddings = max_position_embeddings
        self.rope_parameters = rope_parameters
        super().__init__(**kwargs)
