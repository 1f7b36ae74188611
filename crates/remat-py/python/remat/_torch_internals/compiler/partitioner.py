"""Torch's partitioner with Remat's choice of the values that are saved.

All else stays torch's own: dead code, common subexpressions, tags of ``torch.utils.checkpoint``, collectives, effects,
random state, symbolic sizes, the order of the backward pass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch import fx

from ..._errors import RematError
from ..compiled import SLOT
from .extension_point import CustomPartitionerFn
from .node_kinds import NodeKinds

#: Chooses the values that the backward pass is handed, from a joint graph and the outputs of its two passes.
Choice = Callable[[NodeKinds, list[Any], list[Any]], list[fx.Node]]

_one_at_a_time = threading.RLock()


class _Named:
    """The pickled form of a partitioner: its id alone."""

    def __init__(self, identity: bytes) -> None:
        self.identity = identity


class Partitioner(CustomPartitionerFn):
    """Inductor calls it with each joint graph, and asks it for an id for its cache."""

    def __init__(self, choose: Choice, identity: Callable[[], bytes], extra: Callable[[], int] = lambda: 0) -> None:
        self._choose = choose
        self._identity = identity
        #: How many tensors the backward pass is handed beyond the saved values.
        self._extra = extra

    def __call__(
        self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
    ) -> tuple[fx.GraphModule, fx.GraphModule]:
        """Splits a joint graph into the forward and the backward graph."""
        forward, backward = partition(self._choose, gm, joint_inputs, **kwargs)
        add_slots(forward, backward, self._extra(), kwargs["num_fwd_outputs"])
        return forward, backward

    def uuid(self) -> bytes:
        """An id that differs whenever the choice may."""
        return self._identity()

    def __reduce__(self) -> tuple[type[_Named], tuple[bytes]]:
        # Torch pickles its settings, this one among them, to make the key of its compile cache.
        return (_Named, (self.uuid(),))

    def __deepcopy__(self, _memo: object) -> Partitioner:
        return self


def partition(
    choose: Choice, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Splits a joint graph into the forward and the backward graph, by torch's partitioner and Remat's choice.

    Raises ``RematError`` where torch's own ``activation_memory_budget`` is set.
    """
    from torch._functorch import partitioners

    def chosen(joint_graph: fx.Graph, node_info: Any, memory_budget: float = 1) -> list[fx.Node]:
        if memory_budget != 1:
            raise RematError(
                f"torch's activation_memory_budget is {memory_budget}, a ratio of its own partitioner: "
                "leave it at 1 and give remat.compile a budget in bytes"
            )
        (output,) = joint_graph.find_nodes(op="output")
        returned = pytree.arg_tree_leaves(*output.args)
        forward = kwargs["num_fwd_outputs"]
        return choose(NodeKinds(joint_graph, node_info), returned[:forward], returned[forward:])

    with _one_at_a_time:
        torchs = partitioners.choose_saved_values_set
        partitioners.choose_saved_values_set = chosen
        try:
            return partitioners.min_cut_rematerialization_partition(gm, joint_inputs, **kwargs)
        finally:
            partitioners.choose_saved_values_set = torchs


def add_slots(forward: fx.GraphModule, backward: fx.GraphModule, count: int, own_outputs: int) -> None:
    """Has the forward graph return an input so many times more, and the backward graph take it after saved tensors.

    They are places for tensors that rewritten code hands on. Raises ``RematError`` where torch needs to know more of
    what is saved than that it is a tensor.
    """
    if not count:
        return
    (output,) = forward.graph.find_nodes(op="output")
    returned = list(output.args[0])
    saved = returned[own_outputs:]
    tensors = [node for node in saved if isinstance(node.meta.get("val"), torch.Tensor)]
    if len(tensors) != len(saved) or any(node.meta.get("saved_tensor_with_no_vc_check") for node in saved):
        raise RematError("a graph that saves more than plain tensors cannot hand on others")
    spare = next(node for node in forward.graph.nodes if isinstance(node.meta.get("val"), torch.Tensor))
    output.args = (tuple([*returned, *[spare] * count]),)
    described = output.meta.get("desc")
    if described is not None:
        kind = type(described[-1]) if saved else None
        more = [kind(len(saved) + number) for number in range(count)] if kind is not None else []
        output.meta["desc"] = [*described, *more]
    placeholders = backward.graph.find_nodes(op="placeholder")
    names = {node.name for node in saved}
    before = next(node for node in placeholders if node.name not in names)
    for number in range(count):
        with backward.graph.inserting_before(before):
            slot = backward.graph.placeholder(f"{SLOT}{number}")
            slot.meta = dict(spare.meta)
    forward.recompile()
    backward.recompile()


def donates_buffers() -> bool:
    """Whether a backward pass may write into saved values: torch then refuses to run it twice."""
    from torch._functorch import config

    return bool(config.donated_buffer)


def without_recomputing() -> Partitioner:
    """Torch's partitioner that recomputes nothing, for comparison."""
    from torch._functorch.partitioners import default_partition

    class Default(Partitioner):
        def __call__(
            self, gm: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            kwargs.pop("compiler", None)
            return default_partition(gm, joint_inputs, **kwargs)

    return Default(lambda kinds, forward, backward: [], lambda: b"default_partition")
