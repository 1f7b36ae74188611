"""The kinds of the nodes of a joint graph, by torch's lists and tags of ops."""

from __future__ import annotations

import operator
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import fx
from torch._functorch import config, partitioners
from torch._functorch.compile_utils import get_aten_target
from torch.fx.experimental._backward_state import BackwardState
from torch.utils.checkpoint import CheckpointPolicy

from ..._errors import RematError
from .lowering_rules import HEAVY
from .op_time import nanoseconds

# Ops of other libraries may do anything; those of torch itself only compute.
_KNOWN = {"aten", "prims"}
# Inductor writes random numbers as ops of its own, made from a seed in the middle of a kernel.
_RANDOM_FROM_SEED = {"inductor_random", "inductor_randint"}


@dataclass(frozen=True)
class Kind:
    """The kind of one node."""

    #: Name of its op: ``placeholder``, ``get_attr``, ``getitem`` or that of the op.
    op: str
    #: Bytes of the tensor; of a tuple, of all its items.
    bytes: int
    #: Whether it can be part of a kernel with others.
    fusible: bool
    #: Whether separate kernels read its result rather than compute it each.
    heavy: bool
    #: Whether it is on torch's list of ops that may be recomputed.
    cheap: bool
    #: Whether it is on torch's list of ops that take long.
    long: bool
    random: bool
    view: bool
    #: Whether it is a size, a stride or computed from such.
    symbol: bool
    #: Whether the backward pass can be handed it.
    savable: bool
    #: Whether ``torch.utils.checkpoint`` demands that it is recomputed.
    must_recompute: bool
    #: Whether ``torch.utils.checkpoint``, or torch itself, demands that it is saved.
    must_save: bool
    #: Whether it may run only once: it writes to something, gives a size a new name, or nothing is known of it.
    once: bool


@dataclass(frozen=True)
class Rules:
    """Which ops must not be recomputed."""

    #: Ops that torch does not list as cheap.
    known_only: bool = True
    #: Ops that make less than a quarter of the bytes that they read.
    reductions: bool = True
    #: Ops whose result is read in the backward pass by an op that cannot share a kernel with them.
    materialized: bool = True
    #: Ops whose result is used in several kernels, far apart.
    used_far_apart: bool = True
    #: One op in each chain of a hundred that could all be recomputed.
    long_chains: bool = True

    @classmethod
    def of_torch(cls) -> Rules:
        """The rules that ``torch._functorch.config`` sets."""
        gentle = not config.aggressive_recomputation
        return cls(
            known_only=gentle and config.ban_recompute_not_in_allowlist,
            reductions=config.ban_recompute_reductions,
            materialized=gentle and config.ban_recompute_materialized_backward,
            used_far_apart=gentle and config.ban_recompute_used_far_apart,
            long_chains=gentle and config.ban_recompute_long_fusible_chains,
        )

    def of_fusion(self) -> dict[str, bool]:
        """The rules that the planner applies to the whole graph, under its names."""
        return {
            "materialized_backward": self.materialized,
            "used_far_apart": self.used_far_apart,
            "long_fusible_chains": self.long_chains,
        }


@dataclass
class NodeKinds:
    """The kinds of all nodes of a joint graph, and their places in it."""

    graph: fx.Graph
    #: The ``NodeInfo`` of torch's partitioner.
    info: Any
    _ops: Any = field(default_factory=partitioners.get_default_op_list)
    _known: dict[fx.Node, Kind] = field(default_factory=dict)

    def __getitem__(self, node: fx.Node) -> Kind:
        kind = self._known.get(node)
        if kind is None:
            kind = self._known[node] = self._kind(node)
        return kind

    def nodes(self) -> Iterator[fx.Node]:
        """All but the output, in the order of the graph."""
        return (node for node in self.graph.nodes if node.op != "output")

    def inputs(self) -> list[fx.Node]:
        """The inputs of the forward pass."""
        return list(self.info.inputs)

    def free(self, node: fx.Node) -> bool:
        """Whether it is there for the whole step anyway, as parameters and buffers are."""
        return bool(config.treat_parameters_as_free_to_save) and node in self.info.static_lifetime_input_nodes

    def in_forward(self, node: fx.Node) -> bool:
        """Whether the forward outputs are computed from it."""
        return bool(self.info.is_required_fw(node))

    def in_backward(self, node: fx.Node) -> bool:
        """Whether it can only run in the backward pass: it is computed from a tangent, or writes to something there."""
        return node in self._after_tangents

    def needed_at_end(self, node: fx.Node) -> bool:
        """Whether the backward pass returns it although no tangent is in it."""
        return self.info.is_required_bw(node) and not self.in_backward(node)

    def gathers(self, node: fx.Node) -> bool:
        """Whether it can share a kernel with any op that it reads: it only puts tensors side by side."""
        return node.op == "call_function" and get_aten_target(node) == torch.ops.aten.cat

    def on_cpu(self) -> bool:
        """Whether all tensors of the graph are on processors."""
        values = (node.meta.get("val") for node in self.graph.nodes)
        return all(value.device.type == "cpu" for value in values if isinstance(value, torch.Tensor))

    def nanoseconds(self, node: fx.Node) -> int:
        """About how long its op takes by itself."""
        kind = self[node]
        if node.op != "call_function" or kind.view or kind.symbol or kind.op == "getitem":
            return 0
        return nanoseconds(node, sum(self[read].bytes for read in node.all_input_nodes), kind.bytes)

    @cached_property
    def _after_tangents(self) -> Collection[fx.Node]:
        """Tangents, ops that only the backward pass may run, and all that is computed from either."""
        known: Collection[fx.Node] | None = getattr(self.info, "tangents_closure", None)
        if known is not None:
            return known
        found: set[fx.Node] = set()  # torch 2.9 does not say
        for node in self.graph.nodes:
            tangent = node.op == "placeholder" and "tangents" in str(node.target)
            if tangent or partitioners._must_be_in_backward(node):
                found.add(node)
            if node in found:
                found.update(node.users)
        return found

    def _kind(self, node: fx.Node) -> Kind:
        value = node.meta.get("val")
        call = node.op == "call_function"
        target = get_aten_target(node) if call else None
        name = _op_name(node, target)
        symbol = isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))
        random = name in _RANDOM_FROM_SEED or _is_random(node)
        view = call and self._ops.is_view(node)
        return Kind(
            op=name,
            bytes=0 if node.op == "get_attr" or _opaque(node) else _bytes(node),
            fusible=call and (self._ops.is_fusible(node) or name in _RANDOM_FROM_SEED),
            heavy=name in HEAVY and isinstance(value, torch.Tensor) and value.device.type == "cpu",
            cheap=call and (view or symbol or name == "getitem" or self._ops.is_recomputable(node) or _is_note(node)),
            long=call and self._ops.is_compute_intensive(node),
            random=random,
            view=view,
            symbol=symbol,
            savable=_savable(node, value, symbol),
            must_recompute=partitioners.must_recompute(node),
            must_save=node.meta.get("recompute") == CheckpointPolicy.MUST_SAVE,
            once=_once(node),
        )


def _op_name(node: fx.Node, target: Any) -> str:
    if node.op != "call_function":
        return node.op
    if node.target is operator.getitem:
        return "getitem"
    return str(getattr(target, "__name__", target))


def _bytes(node: fx.Node) -> int:
    if "val" not in node.meta or node.meta["val"] is None:
        return 0
    try:
        return int(partitioners._size_of(node))
    except RuntimeError as error:
        raise RematError(f"{node.name} ({node.target}): {error}") from error


def _savable(node: fx.Node, value: Any, symbol: bool) -> bool:
    if node.op == "get_attr" or node.meta.get("aot_runtime_epilogue_input_mutation", False):
        return False
    return symbol or isinstance(value, torch.Tensor) or _opaque(node)


def _opaque(node: fx.Node) -> bool:
    """Whether it is an object that goes from the forward to the backward pass as it is."""
    value = node.meta.get("val")
    if isinstance(value, (torch.Tensor, torch.SymInt)):
        return False
    others = getattr(partitioners, "is_opaque_node", None)  # older torch has only the state below
    return isinstance(value, BackwardState) or (others is not None and bool(others(node)))


def _is_note(node: fx.Node) -> bool:
    """Whether it computes nothing: an assertion, a device."""
    value = node.meta.get("val")
    schema = getattr(node.target, "_schema", None)
    return isinstance(value, torch.device) or (schema is not None and not schema.returns)


def _is_random(node: fx.Node) -> bool:
    """Whether it draws random numbers; attention whose dropout is 0 draws none."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    schema: Any = getattr(node.target, "_schema", None)
    names = [argument.name for argument in schema.arguments] if schema is not None else []
    if "dropout_p" not in names:
        return True
    place = names.index("dropout_p")
    default = schema.arguments[place].default_value
    chance = node.args[place] if len(node.args) > place else node.kwargs.get("dropout_p", default)
    return not (isinstance(chance, (int, float)) and chance == 0)


def _once(node: fx.Node) -> bool:
    schema = getattr(node.target, "_schema", None)
    call = node.op == "call_function"
    mutable = call and schema is not None and schema.is_mutable
    foreign = call and getattr(node.target, "namespace", "aten") not in _KNOWN and not _free(node)
    return bool(mutable or foreign or node.meta.get("unbacked_bindings"))


def _free(node: fx.Node) -> bool:
    """Whether it is arithmetic of sizes or an item of a tuple, and no op."""
    return not isinstance(node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator))
