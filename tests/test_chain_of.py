"""Models become chains by their structure, give the model's bits as such, and are refused where they are none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import remat
import torch
import torch.nn.functional as F
from bits import bits, differences
from torch import Tensor, nn
from torch.utils import _pytree as pytree


class DenseBlock(nn.ModuleDict):
    """Every layer reads all that was made before it."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        for index in range(layers):
            self[f"layer{index}"] = nn.Sequential(nn.Conv2d(width + 4 * index, 4, 3, padding=1), nn.BatchNorm2d(4))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self.values():
            features.append(F.relu(layer(torch.cat(features, 1))))
        return torch.cat(features, 1)


class Dense(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(DenseBlock(3, 4), nn.Conv2d(19, 8, 1), DenseBlock(8, 4), nn.Dropout(0.1))
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean((2, 3)))


class Layer(nn.Module):
    """A transformer layer that returns a tuple, and branches in ways that cannot be traced."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, hidden: Tensor, mask: Tensor | None = None, cache: Any = None) -> tuple[Tensor, Tensor | None]:
        q, k, v = self.query(self.norm(hidden)).chunk(3, -1)
        scores = q @ k.transpose(-1, -2)
        if mask is not None:
            scores = scores + mask
        weights = scores.softmax(-1)
        if float(hidden.detach().abs().sum()) < 0:
            raise ValueError
        return hidden + self.dropout(self.out(weights @ v)), None if cache is None else k


class LanguageModel(nn.Module):
    """As Hugging Face's: optional arguments, an attention mask for all layers, a dict as the result."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed, self.places = nn.Embedding(50, width), nn.Embedding(32, width)
        self.layers = nn.ModuleList(Layer(width) for _ in range(5))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, return_dict: bool = True
    ) -> dict[str, Tensor] | tuple[Tensor]:
        length = input_ids.shape[1]
        hidden = self.embed(input_ids) + self.places(torch.arange(length, device=input_ids.device))
        mask = None if attention_mask is None else (1.0 - attention_mask[:, None, :].float()) * -1e4
        for layer in self.layers:
            hidden = layer(hidden, mask)[0]
        logits = self.head(self.norm(hidden))
        return {"logits": logits} if return_dict else (logits,)


class Aux(nn.Module):
    """A second output from the middle, in training."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(6))
        self.side = nn.Linear(16, 3)

    def forward(self, x: Tensor) -> Any:
        side = None
        for index, block in enumerate(self.blocks):
            x = block(x) + x
            if index == 2 and self.training:
                side = self.side(x)
        return (x, side) if self.training else x


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(50, (4, 12)), "attention_mask": (torch.rand(4, 12) > 0.2).long()}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]] = {
    "dense": (Dense, lambda: torch.randn(2, 3, 12, 12), 9),
    "language model": (LanguageModel, tokens, 6),
    "aux": (Aux, lambda: torch.randn(8, 16), 6),
}


def torchvision_models() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]]:
    try:
        from torchvision import models
    except ImportError:
        return {}

    def pictures(size: int) -> Callable[[], Tensor]:
        return lambda: torch.randn(2, 3, size, size)

    def vgg() -> nn.Module:
        model = models.VGG(models.vgg.make_layers([8, "M", 16, "M"], True), 10, init_weights=False)
        model.classifier = nn.Sequential(nn.Linear(16 * 49, 16), nn.ReLU(True), nn.Dropout(), nn.Linear(16, 10))
        return model

    return {
        "resnet18": (models.resnet18, pictures(32), 20),
        "densenet": (lambda: models.DenseNet(8, (3, 3, 3, 3), 16), pictures(32), 25),
        "inception": (lambda: models.inception_v3(init_weights=False), pictures(299), 30),
        "vgg": (vgg, pictures(32), 10),
        "vit": (lambda: models.VisionTransformer(32, 8, 3, 2, 32, 64, dropout=0.1), pictures(32), 10),
    }


MODELS |= torchvision_models()


def trained(model: nn.Module, run: Callable[[Any], Any], sample: Any) -> Any:
    model.zero_grad()
    torch.manual_seed(3)
    output = run(sample)
    sum(t.float().square().mean() for t in pytree.tree_leaves(output)).backward()  # type: ignore[union-attr]
    return bits([output, [p.grad for p in model.parameters()], list(model.buffers()), torch.get_rng_state()])


@pytest.mark.parametrize("name", MODELS)
def test_same_bits(name: str) -> None:
    make, draw, stages = MODELS[name]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    sample, model = draw(), make()
    start = {key: value.clone() for key, value in model.state_dict().items()}

    def call(value: Any) -> Any:
        return model(**value) if isinstance(value, dict) else model(value)

    chain = remat.chain_of(model, sample)
    assert len(chain) >= stages
    assert differences(bits(start), bits(model.state_dict())) == []
    expected = trained(model, call, sample)
    model.load_state_dict(start)
    assert differences(expected, trained(model, chain, sample)) == []
    with pytest.raises(remat.BudgetError) as refused:
        remat.Checkpointable(chain, sample, 1)
    model.load_state_dict(start)
    planned = remat.Checkpointable(chain, sample, refused.value.smallest + 2**18)
    assert differences(expected, trained(model, planned, sample)) == []
    model.eval()
    with torch.no_grad():
        assert differences(bits([call(sample)]), bits([planned(sample)])) == []
    with pytest.raises(remat.RematError, match="another training mode"):
        planned(sample)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(nn.Conv2d(3 if index == 0 else 8, 8, 3, padding=1) for index in range(5))
        self.up = nn.ModuleList(nn.Conv2d(16, 8, 3, padding=1) for _ in range(5))

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.down:
            x = layer(x).relu()
            kept.append(x)
        for layer in self.up:
            x = layer(torch.cat([x, kept.pop()], 1)).relu()
        return x


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.one(x) if x.sum() > 0 else self.two(x)


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers, self.calls = nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), 0

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            self.calls += 1
            x = layer(x) * self.calls
        return x


@pytest.mark.parametrize(
    ("model", "shape", "why"),
    [
        (UNet(), (1, 3, 8, 8), "is no chain: .* operations lie between"),
        (Branching(), (2, 4), "cannot be traced .*control flow"),
        (Counting(), (2, 4), "other bits than whole"),
        (nn.Linear(4, 4), (2, 4), "is no chain"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_no_chain(model: nn.Module, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(remat.RematError, match=why):
        remat.chain_of(model, torch.randn(shape))


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="no module"):
        remat.chain_of(torch.tanh, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no tensor"):
        remat.chain_of(nn.Linear(1, 1), ())
