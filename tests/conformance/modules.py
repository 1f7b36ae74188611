"""The modules of torch's database: built, run forward and backward, in training and evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from .inputs import copies
from .pressure import Moment, Program
from .variants import differentiable, gradients

VARIANTS = ("train", "eval", "no_grad", "double_backward")


def claimed(info: Any, dtype: torch.dtype) -> list[str]:
    """The variants that the database claims of a module with a dtype."""
    if dtype not in info.supported_dtypes("cpu"):
        return []
    left_out = set() if info.train_and_eval_differ else {"eval"}
    left_out |= set() if info.supports_gradgrad else {"double_backward"}
    return [variant for variant in VARIANTS if variant not in left_out]


def programs(info: Any, dtype: torch.dtype, variant: str) -> Iterator[Program]:
    """A program for each input of the database."""
    training = variant not in ("eval", "no_grad")
    given = info.module_inputs_func(info, device="cpu", dtype=dtype, requires_grad=True, training=training)
    for one in given:
        if one.forward_input is not None:
            yield lambda moment, one=one: _ran(info, dtype, variant, one, moment)


def _ran(info: Any, dtype: torch.dtype, variant: str, given: Any, moment: Moment) -> Any:
    built, called = given.constructor_input, given.forward_input
    fresh = copies((called.args, called.kwargs))
    module = info.module_cls(*built.args, **built.kwargs).to(dtype=dtype)
    module.train(variant not in ("eval", "no_grad"))
    args, kwargs = fresh()
    moment()
    with torch.set_grad_enabled(variant != "no_grad"):
        found = module(*args, **kwargs)
        moment()
        starts = [differentiable((args, kwargs)), list(module.parameters())]
        once = gradients(found, starts, again=variant == "double_backward")
        moment()
        twice = gradients(once, starts) if variant == "double_backward" else []
    moment()
    state = tree_map_only(Tensor, torch.detach, dict(module.state_dict()))
    return [found, once, twice, state, args, kwargs]
