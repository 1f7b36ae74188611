"""Devices by name, and storages on them."""

from __future__ import annotations

from collections.abc import Callable

import torch


def device_name(device: torch.device) -> str:
    """The one name of a device, such as ``cpu`` or ``cuda:0``."""
    if device.type == "cpu":
        return "cpu"
    index = device.index
    if index is None:
        module = getattr(torch, device.type, None)
        index = module.current_device() if module is not None and hasattr(module, "current_device") else 0
    return f"{device.type}:{index}"


def devices() -> list[str]:
    """Names of the devices with memory that this machine has."""
    found = ["cpu"]
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is not None:
        found += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    return found


def device_of(storage: torch.UntypedStorage) -> tuple[str, torch.device] | None:
    """Name and device of a storage; ``None`` where tensors have no memory."""
    device = storage.device
    return None if device.type == "meta" else (device_name(device), device)


def synchronizer(name: str) -> Callable[[], None] | None:
    """The function that waits for a device; ``None`` where the device computes at once."""
    kind = name.split(":")[0]
    if kind == "cpu":
        return None
    module = getattr(torch, kind, None)
    return module.synchronize if module is not None and hasattr(module, "synchronize") else None


def empty_storage(device: torch.device) -> torch.UntypedStorage:
    """A storage of no bytes."""
    return torch.UntypedStorage(0) if device.type == "cpu" else torch.UntypedStorage(0, device=device)


def blank_storage(device: torch.device, size: int) -> torch.UntypedStorage:
    """A storage of so many bytes, not written to."""
    return torch.UntypedStorage(size) if device.type == "cpu" else torch.UntypedStorage(size, device=device)
