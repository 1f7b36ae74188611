"""Devices by name, what torch knows of each, and storages on them.

The CPU is one device; the others are those of the machine's accelerator: CUDA, XPU, MPS or a backend of `PrivateUse1`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch


def device_name(device: torch.device) -> str:
    """The one name of a device, such as ``cpu`` or ``cuda:0``."""
    return "cpu" if device.type == "cpu" else f"{device.type}:{index_of(device)}"


def index_of(device: torch.device) -> int:
    """The number of a device among those of its type: of the current one, where the device has none."""
    if device.index is not None:
        return device.index
    current = getattr(device_module(device), "current_device", None)
    return int(current()) if current is not None else 0


def device_module(device: torch.device) -> Any:
    """Torch's module for devices of a type, such as ``torch.cuda``; ``None`` where there is none."""
    return getattr(torch, device.type, None)


def devices() -> list[str]:
    """Names of the devices with memory that this machine has."""
    found = ["cpu"]
    accelerator = accelerator_here()
    if accelerator is not None:
        found += [f"{accelerator.type}:{index}" for index in range(torch.accelerator.device_count())]
    return found


def accelerator_here() -> torch.device | None:
    """The machine's accelerator, without a number; ``None`` where no device of it is there."""
    return torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None


def on_accelerator(device: torch.device) -> bool:
    """Whether a device is one of the machine's accelerator: not the CPU, and not one without memory (meta)."""
    if device.type in ("cpu", "meta"):
        return False
    accelerator = accelerator_here()
    return accelerator is not None and accelerator.type == device.type


def device_in_use() -> torch.device:
    """The current device of the accelerator if the program uses that, else the CPU."""
    accelerator = accelerator_here()
    if accelerator is None:
        return torch.device("cpu")
    initialized = getattr(device_module(accelerator), "is_initialized", None)
    if initialized is not None and not initialized():
        return torch.device("cpu")
    return torch.device(accelerator.type, torch.accelerator.current_device_index())


def current_index() -> int:
    """The number of the accelerator's current device; -1 before the program uses one."""
    device = device_in_use()
    return -1 if device.type == "cpu" else device.index


def usual_device() -> torch.device:
    """The accelerator if there is one, else the CPU."""
    return accelerator_here() or torch.device("cpu")


def physical_memory(device: torch.device) -> int | None:
    """Bytes of memory that a device of the accelerator has; ``None`` where torch does not tell."""
    properties = getattr(device_module(device), "get_device_properties", None)
    if properties is not None:
        total = getattr(properties(index_of(device)), "total_memory", None)
        if total is not None:
            return int(total)
    try:
        return int(torch.accelerator.get_memory_info(index_of(device))[1])
    except (AttributeError, RuntimeError):
        return None


def free_memory(device: torch.device) -> int | None:
    """Bytes of an accelerator's device that are free or that its allocator keeps for tensors; ``None`` where torch does
    not tell."""
    index = index_of(device)
    try:
        free = int(torch.accelerator.get_memory_info(index)[0])
    except (AttributeError, RuntimeError):
        info = getattr(device_module(device), "mem_get_info", None)
        if info is None:
            return None
        free = int(info(index)[0])
    module = device_module(device)
    reserved, allocated = (getattr(module, f"memory_{name}", None) for name in ("reserved", "allocated"))
    if reserved is not None and allocated is not None:
        free += int(reserved(index)) - int(allocated(index))
    return free


def device_of(storage: torch.UntypedStorage) -> tuple[str, torch.device] | None:
    """Name and device of a storage; ``None`` where tensors have no memory."""
    device = storage.device
    return None if device.type == "meta" else (device_name(device), device)


def synchronizer(device: torch.device) -> Callable[[], None] | None:
    """The function that waits for a device; ``None`` where the device computes at once."""
    if not on_accelerator(device):
        return None
    index = index_of(device)
    return lambda: torch.accelerator.synchronize(index)


def empty_storage(device: torch.device) -> torch.UntypedStorage:
    """A storage of no bytes."""
    return torch.UntypedStorage(0) if device.type == "cpu" else torch.UntypedStorage(0, device=device)


def blank_like(size: int) -> torch.Tensor:
    """A tensor of one byte that stands for ``size`` of them: ``empty_like`` makes tensors of as many bytes."""
    return torch.empty(1, dtype=torch.uint8).expand(size)


def blank_storage(device: torch.device, size: int) -> torch.UntypedStorage:
    """A storage of so many bytes, not written to."""
    return torch.UntypedStorage(size) if device.type == "cpu" else torch.UntypedStorage(size, device=device)


def storage_over(address: int, device: str, size: int) -> torch.UntypedStorage:
    """A storage over so many bytes that it does not own, on the device of this name."""
    made = torch._C._construct_storage_from_data_pointer(address, torch.device(device), size)
    return cast(torch.UntypedStorage, made)
