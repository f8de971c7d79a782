"""Models that people run, and the sizes of their layers, as the files `config.json` of their releases have them.

The source is the name on Hugging Face, or a paper where that is named. A model is here for a size that no other has: a hidden size that is
no power of two, a vocabulary, a head dimension, a number of queries for each key.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Model:
    """Sizes of one layer: `hidden` and `inner` columns, `vocabulary` logits, `heads` of queries and `groups` of keys and values.

    `width` is a head's columns, `value_width` those of its values where they differ. `inner` is that of one expert in a mixture.
    """

    source: str
    hidden: int
    inner: int
    vocabulary: int
    heads: int
    groups: int
    width: int
    value_width: int = 0


MODELS = {
    "bert-large": Model("google-bert/bert-large-uncased", 1024, 4096, 30522, 16, 16, 64),
    "command-r-plus": Model("CohereForAI/c4ai-command-r-plus", 12288, 33792, 256000, 96, 8, 128),
    "deepseek-v2-lite": Model("deepseek-ai/DeepSeek-V2-Lite", 2048, 1408, 102400, 16, 16, 192, 128),
    "deepseek-v3": Model("deepseek-ai/DeepSeek-V3", 7168, 2048, 129280, 128, 128, 192, 128),
    "gemma-2-2b": Model("google/gemma-2-2b", 2304, 9216, 256000, 8, 4, 256),
    "gemma-2-9b": Model("google/gemma-2-9b", 3584, 14336, 256000, 16, 8, 256),
    "gemma-3-1b": Model("google/gemma-3-1b-pt", 1152, 6912, 262144, 4, 1, 256),
    "gemma-3-27b": Model("google/gemma-3-27b-pt", 5376, 21504, 262208, 32, 16, 128),
    "gemma-7b": Model("google/gemma-7b", 3072, 24576, 256000, 16, 16, 256),
    "glm-4-9b": Model("THUDM/glm-4-9b", 4096, 13696, 151552, 32, 2, 128),
    "gpt-2-large": Model("openai-community/gpt2-large", 1280, 5120, 50257, 20, 20, 64),
    "gpt-2-xl": Model("openai-community/gpt2-xl", 1600, 6400, 50257, 25, 25, 64),
    "gpt-oss-20b": Model("openai/gpt-oss-20b", 2880, 2880, 201088, 64, 8, 64),
    "llama-2-7b": Model("meta-llama/Llama-2-7b-hf", 4096, 11008, 32000, 32, 32, 128),
    "llama-2-13b": Model("meta-llama/Llama-2-13b-hf", 5120, 13824, 32000, 40, 40, 128),
    "llama-3.1-8b": Model("meta-llama/Llama-3.1-8B", 4096, 14336, 128256, 32, 8, 128),
    "llama-3.1-70b": Model("meta-llama/Llama-3.1-70B", 8192, 28672, 128256, 64, 8, 128),
    "llama-3.1-405b": Model("meta-llama/Llama-3.1-405B", 16384, 53248, 128256, 128, 8, 128),
    "llama-3.2-1b": Model("meta-llama/Llama-3.2-1B", 2048, 8192, 128256, 32, 8, 64),
    "llama-3.2-3b": Model("meta-llama/Llama-3.2-3B", 3072, 8192, 128256, 24, 8, 128),
    "mistral-nemo": Model("mistralai/Mistral-Nemo-Base-2407", 5120, 14336, 131072, 32, 8, 128),
    "mixtral-8x7b": Model("mistralai/Mixtral-8x7B-v0.1", 4096, 14336, 32000, 32, 8, 128),
    "nemotron-4-340b": Model("arXiv 2406.11704, table 1", 18432, 73728, 256000, 96, 8, 192),
    "phi-2": Model("microsoft/phi-2", 2560, 10240, 51200, 32, 32, 80),
    "phi-3-mini": Model("microsoft/Phi-3-mini-4k-instruct", 3072, 8192, 32064, 32, 32, 96),
    "qwen-2.5-0.5b": Model("Qwen/Qwen2.5-0.5B", 896, 4864, 151936, 14, 2, 64),
    "qwen-2.5-1.5b": Model("Qwen/Qwen2.5-1.5B", 1536, 8960, 151936, 12, 2, 128),
    "qwen-2.5-7b": Model("Qwen/Qwen2.5-7B", 3584, 18944, 152064, 28, 4, 128),
    "qwen-3-30b-a3b": Model("Qwen/Qwen3-30B-A3B", 2048, 768, 151936, 32, 4, 128),
    "qwen-3-32b": Model("Qwen/Qwen3-32B", 5120, 25600, 151936, 64, 8, 128),
    "whisper-large-v3": Model("openai/whisper-large-v3", 1280, 5120, 51866, 20, 20, 64),
}
