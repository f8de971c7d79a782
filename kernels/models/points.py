"""The list of points: which op of which model, with how many tokens or which lengths. All points are judged; half of them are for tuning.

Each point is one call. Tokens are rows: 1 to 64 of a step of decoding, 8192 of a step of training. Ratios to a copy are judged from
`LARGE` bytes.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass

from kernels.models.catalog import MODELS

LARGE = 64 << 20  # bytes; below, a launch takes as long as the data
SEED = 27

# Tokens by model, for ops over (tokens, hidden). Layer norm: models that have it, or once had.
LAYER_NORM = {
    **{"gpt-2-large": (8192, 65536), "gpt-2-xl": (8192, 65536), "whisper-large-v3": (1500, 48000), "bert-large": (512, 65536)},
    **{"phi-2": (64, 16384), "gpt-oss-20b": (16384,), "llama-3.2-3b": (16384,), "llama-2-13b": (8192, 16384)},
    **{"command-r-plus": (8192,), "nemotron-4-340b": (16, 8192)},
}
RMS_NORM = {
    **{"qwen-2.5-0.5b": (64, 65536), "gemma-3-1b": (65536,), "qwen-2.5-1.5b": (32768,), "llama-3.2-1b": (1, 32768)},
    **{"gemma-2-2b": (32768,), "gpt-oss-20b": (16384,), "phi-3-mini": (16384,), "qwen-2.5-7b": (16384,), "llama-3.1-8b": (16, 16384)},
    **{"qwen-3-32b": (16384,), "gemma-3-27b": (16384,), "deepseek-v3": (8192,), "llama-3.1-70b": (64, 8192), "llama-3.1-405b": (4096,)},
}
# Tokens by model, for ops over (tokens, inner) and (tokens, hidden).
GELU = {
    **{"gpt-2-xl": (16384,), "bert-large": (16384,), "gemma-2-9b": (1, 8192), "phi-2": (8192,), "gemma-7b": (4096,)},
    **{"gemma-3-1b": (64, 16384)},
}
ADD = {"qwen-2.5-0.5b": (65536,), "phi-3-mini": (64, 16384), "llama-2-13b": (8192,), "deepseek-v3": (8192,)}
DROPOUT = {"gpt-2-large": (65536,), "bert-large": (65536,), "phi-2": (16384,)}
# Tokens by model, over (tokens, vocabulary).
CROSS_ENTROPY = {
    **{"llama-2-7b": (8192,), "phi-3-mini": (8192,), "gpt-2-xl": (8192,), "whisper-large-v3": (448, 8192), "deepseek-v2-lite": (4096,)},
    **{"llama-3.1-8b": (4096,), "mistral-nemo": (4096,), "glm-4-9b": (4096,), "qwen-2.5-7b": (4096,), "gpt-oss-20b": (4096,)},
    **{"gemma-2-9b": (64, 4096), "gemma-3-27b": (4096,)},
}
LINEAR_CROSS_ENTROPY = {"qwen-2.5-0.5b": (8192,), "llama-3.2-3b": (4096,), "gemma-2-2b": (4096,), "deepseek-v3": (2048,)}
# (rows, columns): probabilities of the next token, attention weights written out, and scores of experts.
SOFTMAX = {
    **{"llama-2-7b": (64, 32000), "gpt-2-xl": (4096, 50257), "llama-3.1-8b": (16, 128256), "qwen-2.5-7b": (2048, 152064)},
    **{"gemma-2-2b": (1024, 256000), "whisper-large-v3": (30000, 1500), "bert-large": (131072, 512), "deepseek-v3": (65536, 256)},
    **{"mixtral-8x7b": (65536, 8), "qwen-3-30b-a3b": (65536, 128), "phi-2": (16384, 2560), "gpt-2-large": (20000, 20000)},
    **{"llama-2-13b": (16384, 5000), "gemma-3-1b": (4096, 32768), "llama-3.2-1b": (2048, 131072)},
}
# (tokens, which product) by model. "up" has N = inner, "down" K = inner, "qkv" all heads, "logits" the vocabulary.
MATMUL = {
    "qwen-2.5-0.5b": ((8192, "up"), (4096, "logits"), (16, "down")),
    "gpt-2-xl": ((8192, "qkv"), (1024, "down")),
    "llama-3.2-1b": ((4096, "up"), (1, "down")),
    "gemma-2-2b": ((4096, "down"), (64, "up")),
    "gpt-oss-20b": ((4096, "qkv"), (128, "up"), (32, "down")),
    "phi-3-mini": ((8192, "qkv"), (300, "down")),
    "qwen-2.5-7b": ((4096, "up"), (300, "qkv"), (16, "up")),
    "llama-3.1-8b": ((2048, "qkv"), (8192, "down"), (64, "up"), (1, "qkv")),
    "mixtral-8x7b": ((512, "up"), (256, "down")),
    "qwen-3-30b-a3b": ((64, "up"), (8192, "down")),
    "llama-2-13b": ((5120, "up"), (1500, "qkv")),
    "deepseek-v3": ((4096, "up"), (128, "down")),
    "llama-3.1-70b": ((4096, "down"), (32, "qkv")),
    "nemotron-4-340b": ((2048, "qkv"),),
}
# (batch, length of queries, length of keys, causal) by model.
ATTENTION = {
    "qwen-2.5-0.5b": ((8, 2048, 2048, True), (64, 1, 1024, False)),
    "gpt-2-xl": ((16, 1024, 1024, True),),
    "whisper-large-v3": ((16, 1500, 1500, False), (16, 448, 1500, False)),
    "bert-large": ((32, 512, 512, False),),
    "gpt-oss-20b": ((2, 8192, 8192, True),),
    "phi-2": ((8, 2048, 2048, True), (1, 1, 2048, False)),
    "phi-3-mini": ((4, 4096, 4096, True),),
    "llama-3.1-8b": ((16, 1024, 1024, True), (4, 4096, 4096, True), (1, 16384, 16384, True), (64, 1, 4096, False), (1, 1, 131072, False)),
    "glm-4-9b": ((2, 8192, 8192, True), (16, 1, 8192, False)),
    "llama-3.1-405b": ((1, 4096, 4096, True),),
    "qwen-2.5-7b": ((4, 4000, 4000, True),),
    "mistral-nemo": ((1, 32768, 32768, True),),
    "deepseek-v2-lite": ((4, 4096, 4096, True),),
    "deepseek-v3": ((1, 4096, 4096, True),),
    "gemma-2-9b": ((4, 4096, 4096, True), (16, 1, 4096, False)),
    "gemma-3-1b": ((8, 1024, 1024, True),),
    "gemma-7b": ((4, 4096, 4096, False),),
}


@dataclass(frozen=True)
class Point:
    """One call: an op, the model that it is from, and its sizes by name, as the sweep takes them."""

    op: str
    model: str
    sizes: tuple[tuple[str, int], ...]
    direction: str = "forward"

    @property
    def values(self) -> tuple[int, ...]:
        """The sizes without their names."""
        return tuple(size for _, size in self.sizes)


def points() -> tuple[Point, ...]:
    """Return all points, each once, in the order of this file."""
    return tuple(dict.fromkeys(_points()))


def for_tuning(seed: int = SEED) -> frozenset[Point]:
    """Return half of the points of each op, drawn by a seed. Configurations may be fitted to these, and to no others."""
    by_op: dict[tuple[str, str], list[Point]] = {}
    for point in points():
        by_op.setdefault((point.op, point.direction), []).append(point)
    draw = random.Random(seed)
    return frozenset(point for _, of_op in sorted(by_op.items()) for point in draw.sample(of_op, len(of_op) // 2))


def _points() -> Iterator[Point]:
    for op, tokens_of in (("layer_norm", LAYER_NORM), ("rms_norm", RMS_NORM), ("add", ADD), ("dropout", DROPOUT)):
        yield from _rows(op, tokens_of, "hidden")
    yield from _rows("gelu", GELU, "inner")
    yield from _rows("cross_entropy", CROSS_ENTROPY, "vocabulary")
    for model, (rows, columns) in SOFTMAX.items():
        for direction in ("forward", "backward") if rows * columns >= LARGE else ("forward",):
            yield Point("softmax", model, (("M", rows), ("N", columns)), direction)
    for model, products in MATMUL.items():
        for tokens, which in products:
            of = MODELS[model]
            shapes = {"up": (of.inner, of.hidden), "down": (of.hidden, of.inner), "logits": (of.vocabulary, of.hidden)}
            shapes["qkv"] = (of.heads + 2 * of.groups) * of.width, of.hidden
            n, k = shapes[which]
            yield Point("matmul", model, (("M", tokens), ("N", n), ("K", k)))
    for model, tokens in LINEAR_CROSS_ENTROPY.items():
        of = MODELS[model]
        yield Point("linear_cross_entropy", model, (("M", tokens[0]), ("H", of.hidden), ("V", of.vocabulary)), "step")
    for model, calls in ATTENTION.items():
        of = MODELS[model]
        heads = (("H", of.heads), ("KV", of.groups), ("D", of.width), ("DV", of.value_width or of.width))
        for batch, queries, keys, causal in calls:
            for direction in ("forward", "backward") if queries > 1 else ("forward",):
                sizes = (("B", batch), *heads, ("S", queries), ("T", keys), ("causal", int(causal)))
                yield Point("attention", model, sizes, direction)


def _rows(op: str, tokens_of: dict[str, tuple[int, ...]], of: str) -> Iterator[Point]:
    """Yield a forward for each number of tokens; a backward too, where that is a step of training."""
    for model, several in tokens_of.items():
        for tokens in several:
            sizes = (("M", tokens), ("N", getattr(MODELS[model], of)))
            for direction in ("forward", "backward") if tokens >= 4096 and op not in ("add", "dropout") else ("forward",):
                yield Point(op, model, sizes, direction)
