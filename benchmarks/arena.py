"""Training steps in one arena: how much larger than the peak it must be, and CPU time beside the C library's allocator.

    python benchmarks/arena.py [--quick] [--models resnet,lstm,gpt,unet] [--steps N]

Every measurement is a process of its own, plain or with the arena preloaded. The smallest arena is found by bisection,
to a hundredth of the peak, for each way of choosing among free blocks; nothing is evicted. CPU times are medians of
steps.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median

import torch
from torch import Tensor, nn

FITS = {"first": 0, "best": 1}
MIB = 1 << 20
# struct remat_arena_statistics: the third number is the high-water mark.
NUMBERS, HIGH_WATER = 14, 2


def library() -> Path:
    """The preloaded allocator, beside the extension module."""
    package = find_spec("remat")
    assert package is not None and package.origin is not None
    return Path(package.origin).with_name("libremat_alloc.so")


class Block(nn.Module):
    """A residual block of two convolutions."""

    def __init__(self, width: int) -> None:
        super().__init__()
        layers = [
            module
            for _ in range(2)
            for module in (nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
        ]
        self.body = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


class Last(nn.Module):
    """The first result of a recurrent layer."""

    def __init__(self, layer: nn.LSTM) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[0]


class Down(nn.Module):
    """A level of a U-Net: the inner part at half the resolution, concatenated with what came in."""

    def __init__(self, width: int, inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(), inner, nn.Upsample(scale_factor=2))
        self.out = nn.Sequential(nn.Conv2d(3 * width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat([x, self.inner(x)], 1))


def resnet() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), *(Block(32) for _ in range(8))), torch.randn(16, 3, 32, 32)


def lstm() -> tuple[nn.Module, Tensor]:
    return Last(nn.LSTM(128, 256, num_layers=2, batch_first=True)), torch.randn(32, 50, 128)


def gpt() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(128, 4, 512, batch_first=True, norm_first=True)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(8, 128, 128)


def unet() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), Down(16, Down(32, Down(64, Block(128))))), torch.randn(
        4, 3, 96, 96
    )


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {"resnet": resnet, "lstm": lstm, "gpt": gpt, "unet": unet}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def train(name: str, steps: int) -> None:
    """Prints the last loss, the CPU milliseconds of a step and, in an arena, its high-water mark."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, batch = MODELS[name]()
    seconds = []
    for _ in range(steps):
        start = cpu_seconds()
        loss = model(batch).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter -= 0.01 * parameter.grad
                parameter.grad = None
        seconds.append(cpu_seconds() - start)
    numbers = (ctypes.c_uint64 * NUMBERS)()
    if "REMAT_ARENA" in os.environ:
        assert ctypes.CDLL(str(library())).remat_arena_read(numbers) == 0
    print(loss.item().hex(), 1000 * median(seconds[1:]), numbers[HIGH_WATER])


def run(name: str, steps: int, arena: int | None = None, fit: str = "best") -> tuple[str, float, int] | None:
    """The numbers of a process that trains; nothing if it ran out of memory."""
    environment = dict(os.environ)
    if arena is not None:
        environment |= {"LD_PRELOAD": str(library()), "REMAT_ARENA": str(arena)}
    command = [sys.executable, __file__, "--train", name, "--steps", str(steps), "--fit", fit]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ended.returncode:
        if "can't allocate memory" not in ended.stderr:
            sys.exit(ended.stderr)
        return None
    loss, milliseconds, peak = ended.stdout.split()
    return loss, float(milliseconds), int(peak)


def smallest(name: str, peak: int, fit: str, hundredths: int) -> float:
    """The smallest arena in which three steps run, over the peak, to so many hundredths of it."""
    low, high = 99, 200
    while high - low > hundredths:
        middle = (low + high) // 2
        if run(name, 3, peak * middle // 100, fit) is None:
            low = middle
        else:
            high = middle
    return high / 100


def compare(name: str, steps: int, hundredths: int) -> str:
    """A row of the table."""
    plain, arena = run(name, steps), run(name, steps, 4096 * MIB)
    assert plain is not None and arena is not None
    assert plain[0] == arena[0], "the losses differ"
    sizes = [smallest(name, arena[2], fit, hundredths) for fit in FITS]
    times = f"{plain[1]:.1f} | {arena[1]:.1f} | {arena[1] / plain[1]:.2f}"
    return f"| {name} | {arena[2] / MIB:.1f} | {sizes[0]:.2f} | {sizes[1]:.2f} | {times} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one model, two steps, to a half: no measurement")
    parser.add_argument("--models", default=",".join(MODELS), help="which, separated by commas")
    parser.add_argument("--steps", type=int, default=20, help="training steps whose time is taken")
    parser.add_argument("--train", choices=MODELS, help=argparse.SUPPRESS)
    parser.add_argument("--fit", choices=FITS, default="best", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.train:
        if "REMAT_ARENA" in os.environ:
            ctypes.CDLL(str(library())).remat_arena_place(0, FITS[given.fit])
        train(given.train, given.steps)
        return
    print("| model | peak, MiB | arena over peak, first fit | best fit | C library, CPU ms a step | arena | ratio |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name in ["lstm"] if given.quick else given.models.split(","):
        print(compare(name, 2, 50) if given.quick else compare(name, given.steps, 1), flush=True)


if __name__ == "__main__":
    main()
