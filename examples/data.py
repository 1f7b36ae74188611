"""Real data that comes with packages already installed: nothing is downloaded.

Images: scikit-learn's wheel ships the 1797 handwritten digits of the UCI set and two photographs.
Text and trees: the Python standard library, read as bytes and as syntax trees.
"""

from __future__ import annotations

import ast
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


def digits(size: int = 8) -> tuple[Tensor, Tensor]:
    """The handwritten digits as (1797, 1, size, size) floats in [-1, 1], with their classes 0..9."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    images = torch.from_numpy(bunch.images).float().unsqueeze(1) / 8 - 1
    if size != 8:
        images = F.interpolate(images, size=(size, size), mode="bilinear", align_corners=False)
    return images, torch.from_numpy(bunch.target).long()


def photographs() -> list[Tensor]:
    """scikit-learn's two sample photographs (a temple, a flower) as (3, 427, 640) floats in [0, 1]."""
    from sklearn.datasets import load_sample_images

    images = load_sample_images().images
    return [torch.from_numpy(image.copy()).permute(2, 0, 1).float() / 255 for image in images]


def random_crops(photos: list[Tensor], count: int, size: int) -> Tensor:
    """`count` square crops, each from a random place of a random photograph: (count, 3, size, size)."""
    crops = []
    for which in torch.randint(len(photos), (count,)).tolist():
        photo = photos[which]
        top = int(torch.randint(photo.shape[1] - size + 1, ()))
        left = int(torch.randint(photo.shape[2] - size + 1, ()))
        crops.append(photo[:, top : top + size, left : left + size])
    return torch.stack(crops)


def shuffled_batches(*tensors: Tensor, batch: int) -> Iterator[list[Tensor]]:
    """Full batches of the rows of `tensors`, reshuffled every epoch, without end."""
    loader = DataLoader(TensorDataset(*tensors), batch_size=batch, shuffle=True, drop_last=True)
    while True:
        yield from loader


def standard_library_modules() -> list[Path]:
    """The top-level modules of the running Python's standard library, by name."""
    return sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))


def source_text(limit: int = 1 << 20) -> Tensor:
    """The first `limit` bytes of the standard library's sources, as they are: uint8."""
    text = b""
    for module in standard_library_modules():
        text += module.read_bytes()
        if len(text) >= limit:
            break
    return torch.frombuffer(bytearray(text[:limit]), dtype=torch.uint8)


def random_windows(text: Tensor, count: int, length: int) -> tuple[Tensor, Tensor]:
    """`count` random windows of the text and, for every byte in them, the byte that follows."""
    starts = torch.randint(len(text) - length, (count, 1))
    positions = starts + torch.arange(length)
    return text[positions].long(), text[positions + 1].long()


def source_functions(modules: int = 60) -> list[tuple[ast.FunctionDef, bool]]:
    """Functions of the standard library's first `modules` files, each with whether it is a method."""
    functions = []
    for module in standard_library_modules()[:modules]:
        nodes = list(ast.walk(ast.parse(module.read_bytes())))
        members = {id(member) for node in nodes if isinstance(node, ast.ClassDef) for member in node.body}
        functions += [(node, id(node) in members) for node in nodes if isinstance(node, ast.FunctionDef)]
    return functions
