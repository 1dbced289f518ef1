"""llama.cpp on token ids: logits and greedy continuations."""

import contextlib
import dataclasses

import llama_cpp
import numpy as np


@dataclasses.dataclass(frozen=True)
class Settings:
    """How llama.cpp computes. EXACT keeps the cache in f32 and attention unfused."""

    cache_type: int | None = None
    flash_attention: bool = True
    threads: int = 1
    all_logits: bool = True  # of every position, not only of the last of each call


EXACT = Settings(cache_type=llama_cpp.GGML_TYPE_F32, flash_attention=False)
DEFAULT = Settings()


@contextlib.contextmanager
def loaded(path, settings: Settings, context: int = 512):
    model = llama_cpp.Llama(
        str(path),
        n_ctx=context,
        n_batch=context,
        n_ubatch=context,
        n_threads=settings.threads,
        n_threads_batch=settings.threads,
        type_k=settings.cache_type,
        type_v=settings.cache_type,
        flash_attn=settings.flash_attention,
        logits_all=settings.all_logits,
        verbose=False,
    )
    try:
        yield model
    finally:
        model.close()


def logits(path, ids: list[int], settings: Settings) -> np.ndarray:
    """[T, V]."""
    with loaded(path, settings, max(256, len(ids))) as model:
        model.eval(ids)
        return np.array(model.scores[: len(ids)])


def greedy(path, ids: list[int], count: int, settings: Settings = EXACT) -> list[int]:
    """The `count` ids that follow, each the most likely one, through the KV cache."""
    continued = []
    with loaded(path, settings, max(256, len(ids) + count)) as model:
        model.eval(ids)
        for _ in range(count):
            continued.append(int(np.argmax(model.scores[model.n_tokens - 1])))
            model.eval(continued[-1:])
    return continued
