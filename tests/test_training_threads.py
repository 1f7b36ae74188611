"""Threads that train within one budget take no more bytes than that, and have the same bits."""

from __future__ import annotations

import threading

import remat
import torch


def test_what_dies_in_another_thread_is_not_counted_beyond_the_budget(way: str) -> None:
    """While one thread's op makes room and replays, another lets go of tensors, and their bytes are gone."""

    def train(seed: int, losses: dict[int, list[float]]) -> None:
        generator = torch.Generator().manual_seed(seed)
        layers = [torch.randn(256, 256, generator=generator).div_(16).requires_grad_() for _ in range(12)]
        for _ in range(3):
            x = torch.randn(1024, 256, generator=generator)
            for layer in layers:
                x = torch.nn.functional.gelu(x @ layer)
            loss = x.square().mean()
            loss.backward()
            with torch.no_grad():
                for layer in layers:
                    layer -= layer.grad
                    layer.grad = None
            losses.setdefault(seed, []).append(loss.item())

    def both() -> dict[int, list[float]]:
        losses: dict[int, list[float]] = {}
        threads = [threading.Thread(target=train, args=(seed, losses)) for seed in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return losses

    plain = both()
    for _ in range(3):
        with remat.budget("19MiB") as run:
            assert both() == plain
        stats = run.stats()
        assert stats.recomputed > 0
        assert stats.peak <= 19 << 20
