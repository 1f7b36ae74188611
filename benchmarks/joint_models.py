"""Models whose joint graphs are cut: full depth where the graph matters, small images, batches and widths."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, tuple[Any, ...]]

VOCABULARY = 512


def make(name: str, quick: bool) -> Made:
    """A model in training mode and what it is called with."""
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model, inputs = MODELS[name](quick)
    return model.train(), inputs


def first(output: Any) -> Tensor:
    """The tensor of a model's answer that the loss is made of."""
    return output if isinstance(output, Tensor) else output[0]


def vision(name: str, side: int = 64, batch: int = 4) -> Callable[[bool], Made]:
    """A model of torchvision's."""

    def made(_quick: bool) -> Made:
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10), (torch.randn(batch, 3, side, side),)

    return made


def vit(quick: bool) -> Made:
    """ViT-B/16 at a quarter of its width."""
    from torchvision.models import VisionTransformer

    depth = 2 if quick else 12
    model = VisionTransformer(64, 16, depth, num_heads=3, hidden_dim=192, mlp_dim=768, num_classes=10, dropout=0.1)
    return model, (torch.randn(4, 3, 64, 64),)


def words() -> tuple[Tensor]:
    """A batch of text."""
    return (torch.randint(VOCABULARY, (4, 64)),)


def gpt2(quick: bool) -> Made:
    """GPT-2 at a quarter of its width."""
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=VOCABULARY, n_positions=64, n_embd=192, n_layer=2 if quick else 12, n_head=6)
    config.use_cache = False
    return GPT2Model(config), words()


def bert(quick: bool) -> Made:
    """BERT at a quarter of its width."""
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(**encoder(quick))), words()


def albert(quick: bool) -> Made:
    """ALBERT at a quarter of its width, with its dropout as BERT's."""
    from transformers import AlbertConfig, AlbertModel

    sizes = {**encoder(quick), "hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    return AlbertModel(AlbertConfig(**sizes, embedding_size=64)), words()


def encoder(quick: bool) -> dict[str, Any]:
    """The part that the two have in common."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": 192,
        "num_hidden_layers": 2 if quick else 12,
        "num_attention_heads": 6,
        "intermediate_size": 768,
        "max_position_embeddings": 64,
    }


MODELS: dict[str, Callable[[bool], Made]] = {
    "resnet18": vision("resnet18"),
    "densenet121": vision("densenet121"),
    "mobilenet_v2": vision("mobilenet_v2"),
    "vgg16": vision("vgg16"),
    "efficientnet_b0": vision("efficientnet_b0"),
    "vit": vit,
    "gpt2": gpt2,
    "albert": albert,
    "bert": bert,
}
