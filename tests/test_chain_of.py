"""Models become chains by their structure, give the model's bits as such, and are refused where they are none."""

from __future__ import annotations

from collections import OrderedDict
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


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 2


class AskingLayer(nn.Module):
    """Batch norm, dropout, work in place, a buffer, a function of its own, a frozen layer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width).requires_grad_(False)
        self.norm = nn.BatchNorm1d(width)
        self.register_buffer("scale", torch.tensor(0.5))

    def forward(self, hidden: Tensor, turn: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = self.query(self.norm(hidden.transpose(1, 2)).transpose(1, 2)).chunk(3, -1)
        mixed = F.scaled_dot_product_attention(q * turn, k * turn, v, mask, is_causal=mask is None) + v
        mixed[..., 0] = mixed[..., 0] * self.scale
        return hidden + F.dropout(self.out(Twice.apply(mixed)), 0.1, self.training).mul_(0.5)


class Asking(nn.Module):
    """As Hugging Face's are now: asks whether the mask masks anything, looks at shapes, computes without autograd."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, width)
        self.layers = nn.ModuleList(AskingLayer(width) for _ in range(5))
        self.head = nn.Linear(width, 50, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, input_ids: Tensor, attention_mask: Tensor, scale: float = 1.0) -> OrderedDict[str, Any]:
        batch, length = input_ids.shape
        if length > 100 or not torch.arange(length).eq(torch.arange(length)).all():
            raise ValueError
        mask = None if attention_mask.eq(1).all() else attention_mask[:, None, :].bool().expand(batch, length, length)
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            turn = torch.linspace(0, 1, length)[:, None].cos() * scale
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden, turn, mask)
        return OrderedDict(logits=self.head(hidden), given=input_ids, scale=scale)


def tokens() -> dict[str, Tensor]:
    return {"input_ids": torch.randint(50, (4, 12)), "attention_mask": (torch.rand(4, 12) > 0.2).long()}


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]] = {
    "dense": (Dense, lambda: torch.randn(2, 3, 12, 12), 9),
    "language model": (LanguageModel, tokens, 6),
    "aux": (Aux, lambda: torch.randn(8, 16), 6),
    "asking": (Asking, tokens, 6),
    "transformer encoder": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32), 4, enable_nested_tensor=False),
        lambda: torch.randn(6, 4, 16),
        16,
    ),
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


def transformers_models() -> dict[str, tuple[Callable[[], nn.Module], Callable[[], Any], int]]:
    try:
        import transformers as hf
    except ImportError:
        return {}
    hf.logging.set_verbosity_error()
    ends = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 50, "use_cache": False}
    sizes = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
    gpt = hf.GPT2Config(n_positions=32, n_embd=16, n_layer=3, n_head=2, **ends)
    t5 = hf.T5Config(d_model=16, d_kv=8, d_ff=32, num_layers=3, num_heads=2, vocab_size=50)
    pictures = {"pixel_values": torch.randn(2, 3, 32, 32)}
    return {
        "gpt2": (lambda: hf.GPT2LMHeadModel(gpt), lambda: (lambda d: {**d, "labels": d["input_ids"]})(tokens()), 8),
        "bert": (lambda: hf.BertModel(hf.BertConfig(**sizes, **ends)), tokens, 8),
        "llama": (lambda: hf.LlamaModel(hf.LlamaConfig(**sizes, **ends)), tokens, 8),
        "t5": (lambda: hf.T5EncoderModel(t5), tokens, 4),
        "hf vit": (lambda: hf.ViTModel(hf.ViTConfig(**sizes, image_size=32, patch_size=8)), lambda: pictures, 8),
    }


MODELS |= torchvision_models() | transformers_models()


def trained(model: nn.Module, run: Callable[[Any], Any], sample: Any) -> Any:
    model.zero_grad()
    torch.manual_seed(3)
    output = run(sample)
    sum(t.float().square().mean() for t in pytree.tree_leaves(output) if isinstance(t, Tensor)).backward()  # type: ignore[union-attr]
    return bits(
        [pytree.tree_leaves(output), [p.grad for p in model.parameters()], list(model.buffers()), torch.get_rng_state()]
    )


def leaves(output: Any) -> Any:
    return bits(pytree.tree_leaves(output))


def asking() -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(1)
    return Asking(), tokens()


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if name == "inception" else []) for name in MODELS]
)
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
    assert pytree.tree_structure(chain(sample)) == pytree.tree_structure(call(sample))
    model.load_state_dict(start)
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
        assert differences(leaves(call(sample)), leaves(planned(sample))) == []
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
    """Takes another course where what it computed is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
            if x.sum() > 0:
                x = x.relu()
        return x


class Reading(Branching):
    """Reads a number from its input."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * float(x.detach().max())
        return x


class Cache:
    """Something that is no tensor."""


class Caching(Branching):
    def forward(self, x: Tensor) -> tuple[Tensor, Cache]:
        for layer in self.layers:
            x = layer(x).relu() if len(x) else x
        return x, Cache()


def hooked() -> nn.Module:
    model = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8), 4, enable_nested_tensor=False)
    model.layers[1].linear1.register_forward_hook(lambda *_: None)
    return model


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
        (
            Branching(),
            (2, 4),
            r"control flow depends on values in tensors, read by __bool__ \(.*test_chain_of.py:\d+\)",
        ),
        (Reading(), (2, 4), r"control flow depends on values in tensors, read by __float__ \(.*test_chain_of.py:\d+\)"),
        (Caching(), (2, 4), "Caching gives a Cache"),
        (hooked(), (3, 2, 4), "layers.1.linear1 has hooks"),
        (Counting(), (2, 4), "other bits than whole"),
        (nn.Linear(4, 4), (2, 4), "is no chain"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_no_chain(model: nn.Module, shape: tuple[int, ...], why: str) -> None:
    with pytest.raises(remat.RematError, match=why):
        remat.chain_of(model, torch.randn(shape))


def test_other_kinds_of_input() -> None:
    model, sample = asking()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    chain = remat.chain_of(model, sample)
    planned = remat.Checkpointable(chain, sample, "1GiB")
    shorter = {name: tensor[:, :7].contiguous() for name, tensor in sample.items()}
    for given, why in (
        (shorter, r"split for a tensor \(4, 12\) .* not a tensor \(4, 7\)"),
        (sample | {"scale": 0.5}, "split for an input of another structure"),
        (sample | {"attention_mask": sample["attention_mask"].int()}, "torch.int64 .* not .* torch.int32"),
    ):
        model.load_state_dict(start)
        expected = trained(model, lambda value: model(**value), given)
        model.load_state_dict(start)
        assert differences(expected, trained(model, chain, given)) == []
        with pytest.raises(remat.RematError, match=why):
            planned(given)
    with torch.autocast("cpu", torch.bfloat16), pytest.raises(remat.RematError, match="another autocast state"):
        planned(sample)
    planned(sample)


def test_questions_about_the_input_are_asked_each_time() -> None:
    model, sample = asking()
    start = {key: value.clone() for key, value in model.state_dict().items()}
    full = sample | {"attention_mask": torch.ones_like(sample["attention_mask"])}
    chain = remat.chain_of(model, sample)
    planned = remat.Checkpointable(chain, sample, "1GiB")
    for given in (full, sample, full):
        for run in (chain, planned):
            model.load_state_dict(start)
            expected = trained(model, lambda value: model(**value), given)
            model.load_state_dict(start)
            assert differences(expected, trained(model, run, given)) == []


def test_bad_arguments() -> None:
    with pytest.raises(ValueError, match="no module"):
        remat.chain_of(torch.tanh, torch.ones(1))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no tensor"):
        remat.chain_of(nn.Linear(1, 1), ())
