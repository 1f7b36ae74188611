"""Architectures of torchvision, timm and transformers, small: few blocks, narrow, without dropout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Made = tuple[nn.Module, Tensor]
"""A model and the tensor that it is called with."""

ARCHITECTURES: dict[str, tuple[str, Callable[[], Made]]] = {}
"""By name the package that has it, and how it is made."""


def architecture(package: str) -> Callable[[Callable[[], Made]], Callable[[], Made]]:
    """Enters a function into the table."""

    def enter(make: Callable[[], Made]) -> Callable[[], Made]:
        ARCHITECTURES[make.__name__] = package, make
        return make

    return enter


def images(count: int = 4, side: int = 32) -> Tensor:
    return torch.randn(count, 3, side, side)


@architecture("torchvision")
def convnext() -> Made:
    from torchvision.models.convnext import CNBlockConfig, ConvNeXt

    blocks = [CNBlockConfig(16, 32, 3), CNBlockConfig(32, None, 3)]
    return ConvNeXt(blocks, stochastic_depth_prob=0.0, num_classes=10), images(16, 64)


@architecture("torchvision")
def resnet() -> Made:
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [1, 1, 1, 1], num_classes=10, width_per_group=8), images()


@architecture("torchvision")
def densenet() -> Made:
    from torchvision.models import DenseNet

    return DenseNet(4, (2, 2), 8, 2, num_classes=10), images()


@architecture("torchvision")
def mobilenet() -> Made:
    from torchvision.models.mobilenetv3 import InvertedResidualConfig, MobileNetV3

    def block(inside: int, out: int, activation: str, stride: int) -> InvertedResidualConfig:
        return InvertedResidualConfig(8, 3, inside, out, True, activation, stride, 1, 1.0)

    blocks = [block(16, 8, "RE", 2), block(24, 8, "HS", 1)]
    return MobileNetV3(blocks, 32, num_classes=10, dropout=0.0), images()


@architecture("torchvision")
def swin_transformer() -> Made:
    from torchvision.models import SwinTransformer

    model = SwinTransformer([4, 4], 16, [2, 2], [2, 2], [2, 2], stochastic_depth_prob=0.0, num_classes=10)
    return model, images()


@architecture("timm")
def mlp_mixer() -> Made:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=10, img_size=32, patch_size=8, num_blocks=2, embed_dim=32), images()


@architecture("timm")
def pool_former() -> Made:
    from timm.models.metaformer import MetaFormer

    model = MetaFormer(num_classes=10, depths=(1, 1), dims=(16, 32), layer_scale_init_values=1e-5)
    return model, images()


@architecture("timm")
def cross_covariance_transformer() -> Made:
    from timm.models.xcit import Xcit

    model = Xcit(
        img_size=32, patch_size=8, num_classes=10, embed_dim=32, depth=2, num_heads=2, eta=1.0, tokens_norm=True
    )
    return model, images()


@architecture("timm")
def vision_transformer() -> Made:
    from timm.models.vision_transformer import VisionTransformer

    model = VisionTransformer(32, 8, num_classes=10, embed_dim=32, depth=2, num_heads=2, init_values=1e-5, qk_norm=True)
    return model, images()


def embedded(width: int = 64, length: int = 32) -> Tensor:
    return torch.randn(2, length, width)


class Embedded(nn.Module):
    """A model of transformers that is called with embeddings; its answer is the last hidden state."""

    def __init__(self, model: nn.Module, **arguments: Any) -> None:
        super().__init__()
        self.model, self.arguments = model, arguments

    def forward(self, x: Tensor) -> Tensor:
        answer: Tensor = self.model(inputs_embeds=x, **self.arguments).last_hidden_state
        return answer


@architecture("transformers")
def llama() -> Made:
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
    )
    return Embedded(LlamaModel(config), use_cache=False), embedded()


@architecture("transformers")
def bert() -> Made:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=64,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    return Embedded(BertModel(config)), embedded()


@architecture("transformers")
def gpt2() -> Made:
    from transformers import GPT2Config, GPT2Model

    config = GPT2Config(vocab_size=64, n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    return Embedded(GPT2Model(config), use_cache=False), embedded()


@architecture("transformers")
def t5() -> Made:
    from transformers import T5Config, T5EncoderModel

    config = T5Config(vocab_size=64, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, dropout_rate=0.0)
    return Embedded(T5EncoderModel(config)), embedded()


@architecture("transformers")
def mamba() -> Made:
    from transformers import MambaConfig, MambaModel

    config = MambaConfig(vocab_size=64, hidden_size=32, state_size=4, num_hidden_layers=2)
    return Embedded(MambaModel(config), use_cache=False), embedded(32, 8)
