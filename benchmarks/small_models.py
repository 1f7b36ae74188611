"""Training steps of small models that people run: many small ops, 5 to 50 ms a step.

The transformers are those of the package `transformers`, with random weights and small configurations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

#: One training step; returns the loss.
Step = Callable[[], float]


def _training(model: nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    def step() -> float:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        return value.item()

    return step


def perceptron() -> Step:
    """20 layers of 64 units with layer norms; Adam's loop over tensors."""
    blocks = (nn.Sequential(nn.Linear(64, 64), nn.GELU(), nn.LayerNorm(64)) for _ in range(20))
    model, x = nn.Sequential(*blocks), torch.randn(32, 64)
    return _training(model, lambda: (model(x) * 2).square().mean())


def gru() -> Step:
    """A GRU cell that generates 60 elements, each from the one before."""
    cell, out = nn.GRUCell(64, 64), nn.Linear(64, 64)
    model, start = nn.ModuleList([cell, out]), torch.randn(16, 64)

    def loss() -> torch.Tensor:
        x, hidden, total = start, torch.zeros(16, 64), torch.zeros(())
        for _ in range(60):
            hidden = cell(x, hidden)
            x = out(hidden).tanh()
            total = total + x.square().mean()
        return total

    return _training(model, loss)


def _language_model(kind: str, **config: Any) -> Step:
    import transformers

    model = getattr(transformers, kind)(getattr(transformers, config.pop("config"))(**config))
    tokens = torch.randint(0, 500, (4, 64))
    return _training(model, lambda: model(input_ids=tokens, labels=tokens).loss)


_SMALL = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4}


def bert() -> Step:
    """BERT with dropout."""
    return _language_model("BertForMaskedLM", config="BertConfig", intermediate_size=256, **_SMALL)


def gpt2() -> Step:
    """GPT-2 with dropout."""
    return _language_model("GPT2LMHeadModel", config="GPT2Config", vocab_size=512, n_embd=64, n_layer=4, n_head=4)


def llama() -> Step:
    """Llama."""
    return _language_model("LlamaForCausalLM", config="LlamaConfig", intermediate_size=128, **_SMALL)


def mixtral() -> Step:
    """Mixtral: experts chosen by the data."""
    more = {"intermediate_size": 128, "num_local_experts": 4, "num_key_value_heads": 2}
    return _language_model("MixtralForCausalLM", config="MixtralConfig", **more, **_SMALL)


def mamba() -> Step:
    """Mamba, whose scan is a loop in Python where its kernels are not installed."""
    small = {"vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 2, "state_size": 8}
    return _language_model("MambaForCausalLM", config="MambaConfig", **small)


def whisper() -> Step:
    """Whisper: an encoder of sound and a decoder of text."""
    import transformers

    sizes = {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    widths = {"encoder_ffn_dim": 256, "decoder_ffn_dim": 256, "max_source_positions": 100, "num_mel_bins": 16}
    tokens = {"vocab_size": 512, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}
    config = transformers.WhisperConfig(**sizes, **heads, **widths, **tokens)
    model = transformers.WhisperForConditionalGeneration(config)
    sound, labels = torch.randn(4, 16, 200), torch.randint(3, 500, (4, 32))
    return _training(model, lambda: model(input_features=sound, labels=labels).loss)


def resnet18() -> Step:
    """torchvision's ResNet-18 on images of 32 x 32."""
    import torchvision

    model = torchvision.models.resnet18(num_classes=10)
    x, labels = torch.randn(4, 3, 32, 32), torch.randint(0, 10, (4,))
    return _training(model, lambda: nn.functional.cross_entropy(model(x), labels))


MODELS: dict[str, Callable[[], Step]] = {
    build.__name__: build for build in (perceptron, gru, bert, gpt2, llama, mixtral, mamba, whisper, resnet18)
}
