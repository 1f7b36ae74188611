"""The ways in which an op of the database is called: as a function, in place, with `out=`, under vmap and so on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

from .inputs import Copies, copies
from .pressure import Moment, Program

SAMPLES_LOOKED_AT = 24
"""Of an op with one dtype: some have hundreds."""


def _found_by_name(op: Any) -> Callable[..., Any]:
    """The function of an op; where a program finds it in torch's namespace, as the namespace has it at each call."""
    *path, name = op.name.split(".")
    owner: Any = torch
    for part in path:
        owner = getattr(owner, part, None)
    if getattr(owner, name, None) is not op.op:
        return op.op  # type: ignore[no-any-return]
    return lambda *args, **kwargs: getattr(owner, name)(*args, **kwargs)


class Call:
    """An op with the arguments of a sample."""

    def __init__(self, info: Any, sample: Any) -> None:
        self.info, self.op, self.finish = info, _found_by_name(info), sample.output_process_fn_grad
        self.broadcasts = sample.broadcasts_input
        self.fresh: Copies = copies((sample.input, sample.args, sample.kwargs))
        tensors = [leaf for leaf in tree_leaves((sample.input, sample.args)) if isinstance(leaf, Tensor)]
        #: Whether nothing could be dropped: some tensor is empty, or all are single numbers.
        self.slight = any(not tensor.numel() for tensor in tensors) or all(tensor.numel() < 2 for tensor in tensors)


Variant = Callable[[Call, Moment], Any]


def differentiable(values: Any) -> list[Tensor]:
    """The tensors in a structure that autograd can follow."""
    leaves = [leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor)]
    return [leaf for leaf in leaves if leaf.requires_grad]


def gradients(outputs: Any, inputs: Any, again: bool = False) -> list[Tensor | None]:
    """Gradients of the inputs; what the outputs are weighted with depends on them."""
    ends, starts = differentiable(outputs), differentiable(inputs)
    if not ends or not starts:
        return []
    weights = [end.detach() * 0.5 + 1 if end.layout is torch.strided else end.detach() * 0.5 for end in ends]
    return list(torch.autograd.grad(ends, starts, weights, create_graph=again, allow_unused=True))


def _function(call: Call, moment: Moment) -> Any:
    given = call.fresh()
    first, args, kwargs = given
    moment()
    found = call.op(first, *args, **kwargs)
    moment()
    found_gradients = gradients(call.finish(found), given)
    moment()
    return [found, found_gradients, given]


def _no_grad(call: Call, moment: Moment) -> Any:
    first, args, kwargs = given = call.fresh()
    moment()
    with torch.no_grad():
        found = call.op(first, *args, **kwargs)
    return [found, given]


def _in_place(call: Call, moment: Moment) -> Any:
    """On copies of the leaves, which autograd lets no op write."""
    first, args, kwargs = given = call.fresh()
    written = tree_map_only(Tensor, lambda tensor: tensor.clone(), first)
    before = tree_map_only(Tensor, lambda tensor: tensor.detach() * 1, first)
    moment()
    found = call.info.get_inplace()(written, *args, **kwargs)
    moment()
    found_gradients = gradients(call.finish(found), given) if call.info.supports_inplace_autograd else []
    moment()
    return [found, written, found_gradients, given, before]


def _out(call: Call, moment: Moment) -> Any:
    """Into tensors of the right form, and into empty ones that the op gives a size."""
    first, args, kwargs = given = call.fresh()
    with torch.no_grad():
        like = call.op(first, *args, **kwargs)
        right = tree_map_only(Tensor, torch.zeros_like, like)
        empty = tree_map_only(Tensor, lambda tensor: tensor.new_empty(0), like)
        moment()
        found = [call.op(first, *args, **kwargs, out=right)]
        moment()
        found.append(call.op(first, *args, **kwargs, out=empty))
    return [found, right, empty, given]


def _view(call: Call, moment: Moment) -> Any:
    """Of views of larger tensors; what shares their memory is written, and all are read again."""
    bases: list[Tensor] = []

    def viewed(tensor: Tensor) -> Tensor:
        if tensor.layout is not torch.strided or type(tensor) is not Tensor or not tensor.dim():
            return tensor.detach()
        base = torch.stack([tensor.detach(), tensor.detach()], -1)
        bases.append(base)
        return base[..., 0]

    with torch.no_grad():
        first, args, kwargs = given = tree_map_only(Tensor, viewed, call.fresh())
        moment()
        found = call.op(first, *args, **kwargs)
        moment()
        for leaf in tree_leaves(found):
            if _writable(leaf) and any(leaf._base is base for base in bases):
                leaf.add_(1)
                moment()
    return [found, given, bases]


def _writable(value: Any) -> bool:
    """Whether a tensor has a value for each of its places, which an op may write."""
    if not isinstance(value, Tensor) or value.layout is not torch.strided or value.dtype is torch.bool:
        return False
    return all(stride or size < 2 for size, stride in zip(value.shape, value.stride(), strict=True))


def _double_backward(call: Call, moment: Moment) -> Any:
    first, args, kwargs = given = call.fresh()
    found = call.finish(call.op(first, *args, **kwargs))
    moment()
    once = gradients(found, given, again=True)
    moment()
    twice = gradients([gradient for gradient in once if gradient is not None], given)
    moment()
    return [found, once, twice, given]


def _forward_ad(call: Call, moment: Moment) -> Any:
    given = call.fresh()

    def dual(tensor: Tensor) -> Tensor:
        if not tensor.requires_grad:
            return tensor
        plain = tensor.detach()
        return forward_ad.make_dual(plain, plain * 0.5 + 0.25)

    with forward_ad.dual_level():
        first, args, kwargs = tree_map_only(Tensor, dual, given)
        moment()
        found = call.op(first, *args, **kwargs)
        moment()
        ends = [leaf for leaf in tree_leaves(call.finish(found)) if isinstance(leaf, Tensor)]
        return [[tuple(forward_ad.unpack_dual(end)) for end in ends], given]


def _vmap(call: Call, moment: Moment) -> Any:
    given = tree_map_only(Tensor, torch.detach, call.fresh())
    leaves, form = tree_flatten(given)
    tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]

    def one(*parts: Tensor) -> Any:
        rest = iter(parts)
        first, args, kwargs = tree_unflatten(
            [next(rest) if isinstance(leaf, Tensor) else leaf for leaf in leaves], form
        )
        found = call.op(first, *args, **kwargs)
        return tuple(leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor))

    batches = [torch.stack([tensor, tensor, tensor]) for tensor in tensors]
    moment()
    return [torch.vmap(one, randomness="different")(*batches), batches]


VARIANTS: dict[str, Variant] = {
    "function": _function,
    "no_grad": _no_grad,
    "in_place": _in_place,
    "out": _out,
    "view": _view,
    "double_backward": _double_backward,
    "forward_ad": _forward_ad,
    "vmap": _vmap,
}


def _trains(op: Any, dtype: torch.dtype) -> bool:
    return bool(op.supports_autograd) and dtype in op.supported_backward_dtypes("cpu")


def claimed(op: Any, dtype: torch.dtype) -> list[str]:
    """The variants that the database claims of an op with a dtype; of views and vmap it makes no exception."""
    if not op.supports_dtype(dtype, "cpu"):
        return []
    trains = _trains(op, dtype)
    holds = {
        "in_place": op.get_inplace() is not None,
        "out": op.supports_out,
        "double_backward": trains and op.supports_gradgrad,
        "forward_ad": trains and op.supports_forward_ad,
        "vmap": not op.is_factory_function,
    }
    return [variant for variant in VARIANTS if holds.get(variant, True)]


def programs(op: Any, dtype: torch.dtype, variant: str) -> Iterator[Program]:
    """A program for each sample; first those whose tensors can be dropped."""
    samples = op.sample_inputs("cpu", dtype, requires_grad=_trains(op, dtype))
    calls = [Call(op, sample) for sample in itertools.islice(samples, SAMPLES_LOOKED_AT)]
    if variant == "in_place":
        calls = [call for call in calls if not call.broadcasts]
    calls.sort(key=lambda call: call.slight)
    for call in calls:
        yield lambda moment, call=call: VARIANTS[variant](call, moment)
