"""Places where a traced forward pass can be cut into stages, and the stages."""

from __future__ import annotations

import operator
from collections import OrderedDict
from itertools import pairwise
from typing import Any

import torch
from torch import fx, nn

from ..._errors import RematError
from ..._memory.tensors import tensors

# The largest share of all operations that one stage may hold: with more in it there is little to choose.
_LARGEST = 0.6
# A pass of at most so many operations may have larger stages.
_FEW = 8


def cut(traced: fx.GraphModule, root: nn.Module, sample: Any, name: str) -> OrderedDict[str, fx.GraphModule]:
    """The stages of a forward pass; ``RematError`` where it is no chain."""
    flow = _Flow(traced, sample)
    ends = [position for position in range(1, len(flow.nodes) - 1) if _may_end(position, flow, root)]
    groups = _groups(flow.nodes, ends)
    largest = max(len(group) for group in groups)
    if len(groups) < 2 or (largest > _LARGEST * len(flow.nodes) and len(flow.nodes) > _FEW):
        raise RematError(
            f"{name} is no chain: {largest} of its {len(flow.nodes)} operations lie between two places where a single "
            "tensor goes on; use remat.budget, which needs no chain"
        )
    return _stages(traced, groups, flow)


def give_own(stages: OrderedDict[str, fx.GraphModule], root: nn.Module) -> None:
    """Has stages read the model's own buffers: those of innermost modules through the modules, others as tensors."""
    for stage in stages.values():
        for node in stage.graph.find_nodes(op="get_attr"):
            path, _, name = str(node.target).rpartition(".")
            owner, holder = root.get_submodule(path), stage.get_submodule(path)
            if path.startswith("model") and not any(True for _ in owner.children()):
                above, _, last = path.rpartition(".")
                setattr(stage.get_submodule(above), last, owner)
            elif name in owner._buffers:
                holder._buffers[name] = owner._buffers[name]


class _Seen(fx.Interpreter):
    """Runs a graph and notes which of its values are tensors, and which have a gradient."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.tensors: set[fx.Node] = set()
        self.wanting: set[fx.Node] = set()

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if isinstance(value, torch.Tensor):
            self.tensors.add(n)
        if any(tensor.requires_grad for tensor in tensors(value)):
            self.wanting.add(n)
        return value


class _Flow:
    """The operations of a traced forward pass in order, and how long each value is needed."""

    def __init__(self, traced: fx.GraphModule, sample: Any) -> None:
        self.seen = _Seen(traced)
        self.seen.run(sample)
        self.nodes = [node for node in traced.graph.nodes if node.op not in ("get_attr", "output")]
        self.output = next(node for node in traced.graph.nodes if node.op == "output")
        #: The position of each operation. The output, and operations that only put it together, come last.
        self.place = {node: position for position, node in enumerate(self.nodes)}
        self.place[self.output] = len(self.nodes)
        for node in reversed(self.nodes):
            puts_output_together = node.users and all(self.place[user] == len(self.nodes) for user in node.users)
            if node not in self.seen.tensors and puts_output_together:
                self.place[node] = len(self.nodes)
        #: The position of the last operation that reads each value.
        self.until = {node: self._last_use(node) for node in self.nodes}

    def _last_use(self, node: fx.Node) -> int:
        return max((self.place[user] for user in node.users if user in self.place), default=0)

    def crossing(self, position: int) -> list[fx.Node]:
        """The values that are known after a position and used later."""
        return [node for node in self.nodes[: position + 1] if self.until[node] > position]

    def live(self, position: int) -> list[fx.Node]:
        """The values with a gradient that are known after a position and computed with later."""
        last = len(self.nodes)
        known = (node for node in self.crossing(position) if node in self.seen.wanting)
        return [node for node in known if any(position < self.place.get(user, 0) < last for user in node.users)]


def _may_end(position: int, flow: _Flow, root: nn.Module) -> bool:
    """Whether a stage may end at a position.

    It may where a single tensor with a gradient goes on. Where an element of a list of modules ends, several may go on
    if the next element reads all of them.
    """
    node, live = flow.nodes[position], flow.live(position)
    if len(live) <= 1:
        return node in flow.seen.tensors and (node in live or (not live and node.op == "call_module"))
    return _element_ends(node, flow.nodes[position + 1], root) and _all_read(live, position, flow.nodes)


def _all_read(live: list[fx.Node], position: int, nodes: list[fx.Node]) -> bool:
    """Whether the next element of a list of modules reads all these values; outside a list, the next operation."""
    following = nodes[position + 1]
    own, ended = set(_stack(following)), set(_stack(nodes[position]))
    scope = next((path for path in _stack(following) if path not in ended), None)
    inside = [node for node in nodes[position + 1 :] if node is following or (scope in own and scope in _stack(node))]
    read = {given for node in inside for given in node.all_input_nodes}
    return all(node in read for node in live)


def _element_ends(node: fx.Node, following: fx.Node, root: nn.Module) -> bool:
    """Whether an element of a list of modules ends between two operations that follow each other."""
    inside, after = _stack(node), _stack(following)
    for path in inside:
        parent, _, _ = path.rpartition(".")
        if path in after or not parent:
            continue
        container, element = root.get_submodule(parent), root.get_submodule(path)
        lists = isinstance(container, (nn.Sequential, nn.ModuleList, nn.ModuleDict)) and len(container) > 1
        if lists and any(True for _ in element.children()):
            return True
    return False


def _stack(node: fx.Node) -> list[str]:
    """Paths of the modules that a node was traced in, outermost first."""
    paths = [str(path) for path, _ in node.meta.get("nn_module_stack", {}).values()]
    return [*paths, str(node.target)] if node.op == "call_module" else paths


def _groups(nodes: list[fx.Node], ends: list[int]) -> list[list[fx.Node]]:
    """The operations of each stage; inputs alone make none."""
    bounds = [0, *(end + 1 for end in ends), len(nodes)]
    groups = [nodes[a:b] for a, b in pairwise(bounds)]
    return [group for group in groups if any(node.op != "placeholder" for node in group)]


def _stages(traced: fx.GraphModule, groups: list[list[fx.Node]], flow: _Flow) -> OrderedDict[str, fx.GraphModule]:
    nodes = [node for node in traced.graph.nodes if node in flow.place and node is not flow.output]
    entered = [node for node in nodes if node.op == "placeholder"]
    stages: OrderedDict[str, fx.GraphModule] = OrderedDict()
    for number, group in enumerate(groups):
        last = number == len(groups) - 1
        leaves = [] if last else flow.crossing(flow.place[group[-1]])
        graph = _graph(group, entered, leaves, flow.output if last else None)
        stages[f"{number}_{_title(group)}"] = fx.GraphModule(traced, graph, class_name="Stage")
        entered = leaves
    return stages


def _graph(group: list[fx.Node], entered: list[fx.Node], leaves: list[fx.Node], output: fx.Node | None) -> fx.Graph:
    """A stage's own graph: one value in, one value out, several as a tuple."""
    graph = fx.Graph()
    value = graph.placeholder("value")
    known: dict[fx.Node, fx.Node] = {}
    if len(entered) == 1:
        known[entered[0]] = value
    else:
        for position, node in enumerate(entered):
            known[node] = graph.call_function(operator.getitem, (value, position))

    def of(node: fx.Node) -> fx.Node:
        if node not in known:
            if node.op != "get_attr":
                raise AssertionError(f"{node} does not reach its stage")
            known[node] = graph.node_copy(node)
        return known[node]

    for node in group:
        if node.op != "placeholder":
            known[node] = graph.node_copy(node, of)
    if output is not None:
        graph.output(fx.node.map_arg(output.args[0], of))
    else:
        graph.output(of(leaves[0]) if len(leaves) == 1 else tuple(of(node) for node in leaves))
    graph.lint()
    return graph


def _title(group: list[fx.Node]) -> str:
    """A stage's name: the innermost module that all of its operations were traced in."""
    node = next((node for node in reversed(group) if _stack(node)), group[-1])
    paths = [path.removeprefix("model").strip(".") for path in _stack(node)]
    first = _stack(group[0])
    shared = [path for path in paths if not first or f"model.{path}" in first or path == ""]
    chosen = next((path for path in reversed(shared) if path), paths[-1] if paths and paths[-1] else node.name)
    return chosen.replace(".", "_")
