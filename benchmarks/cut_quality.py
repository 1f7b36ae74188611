"""One joint graph cut by Remat, by torch and by networkx: what it costs and how long it takes.

All of it is one thread of computing; what is told is the time that the processor spent on it, so that other programs
count for less.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Any

import networkx as nx
import remat
import torch
from remat import _native
from remat._compiled.capture.cut import Cut, choose
from remat._compiled.capture.joint_graph import FlatGraph, flat_graph
from remat._torch_internals import compiler
from timing import in_turn
from torch import fx, nn
from torch._functorch import partitioners
from torch._inductor.compile_fx import compile_fx


@dataclass
class CutRow:
    """A model's graph and cuts, as they were seen."""

    model: str
    nodes: int
    vertices: int
    edges: int
    #: Capacities that are cut: by us, by networkx on the same network, and those of what torch saves.
    cost: int
    networkx_cost: int
    torch_cost: int | None
    #: Of ours in what torch's plan reads, were its bans ours.
    torch_recomputes_banned: int
    bans: int
    torch_bans: int
    bans_only_ours: int
    bans_only_torchs: int
    #: Our solver tells the time on the wall, which is never less.
    solver_s: float
    plan_cut_s: float
    networkx_s: float
    torch_solver_s: float
    pass_s: float
    torch_pass_s: float
    only_ours: list[str] = field(default_factory=list)
    only_torchs: list[str] = field(default_factory=list)

    def broken(self) -> str | None:
        """The fault of the row, if it has one."""
        if self.cost != self.networkx_cost:
            return f"the minimum cut costs {self.networkx_cost}, ours {self.cost}"
        if self.torch_cost is not None and self.torch_cost < self.cost:
            return f"torch's cut costs {self.torch_cost}, ours {self.cost}"
        return None


class _Seen(Exception):
    """The joint graph was seen; nothing is compiled."""


def cut_row(name: str, model: nn.Module, inputs: tuple[Any, ...], rounds: int) -> CutRow:
    """Measures on the joint graph that ``torch.compile`` would partition, at the moment when it would."""
    rows: list[CutRow] = []

    def look(gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
        rows.append(measured(name, _Joint(gm, joint_inputs, kwargs), rounds))
        raise _Seen

    joint_graph(model, inputs, look)
    return rows[0]


def joint_graph(model: nn.Module, inputs: tuple[Any, ...], look: Callable[..., Any]) -> None:
    """Traces a step and calls ``look`` in the place of torch's partitioner; it is to raise."""

    class Partitioner(compiler.Partitioner):
        def __call__(self, gm: fx.GraphModule, joint_inputs: Any, **kwargs: Any) -> Any:
            return look(gm, joint_inputs, **kwargs)

    def backend(gm: fx.GraphModule, example_inputs: Any) -> Any:
        partitioner = Partitioner(choose(lambda cut: None), lambda: b"")
        patches = {"custom_partitioner_fn": partitioner, "force_disable_caches": True}
        return compile_fx(gm, example_inputs, config_patches=patches)

    torch._dynamo.reset()
    try:
        torch.compile(model, backend=backend, fullgraph=True)(*inputs)
    except Exception as error:
        if not _caused_by(error, _Seen):
            raise
    else:
        raise remat.RematError("no joint graph was partitioned")


def _caused_by(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind) or isinstance(getattr(error, "inner_exception", None), kind):
            return True
        error = error.__cause__ or error.__context__
    return False


@dataclass
class _Joint:
    """A joint graph as torch's partitioner is given it; partitioning changes it, so each time gets a copy."""

    gm: fx.GraphModule
    inputs: Any
    kwargs: dict[str, Any]

    def ours(self) -> tuple[float, Cut]:
        """Seconds of the whole pass, and what was cut."""
        cuts: list[Cut] = []
        gm = copy.deepcopy(self.gm)
        start = process_time()
        compiler.partition(choose(cuts.append), gm, self.inputs, **self.kwargs)
        return process_time() - start, cuts[0]

    def torchs(self) -> float:
        """Seconds of torch's whole pass."""
        gm = copy.deepcopy(self.gm)
        start = process_time()
        partitioners.min_cut_rematerialization_partition(gm, self.inputs, **self.kwargs)
        return process_time() - start


@dataclass
class _Torchs:
    """The choice of torch."""

    saved: set[str]
    banned: set[str]
    flat: FlatGraph


def torch_choice(joint: _Joint) -> _Torchs:
    """Torch's own choice, and the flat graph of the very graph on which it was made."""
    found: list[_Torchs] = []
    bans: list[set[str]] = []
    torchs_choice, torchs_solver = partitioners.choose_saved_values_set, partitioners.solve_min_cut

    def solver(*args: Any, **kwargs: Any) -> Any:
        saved, banned = torchs_solver(*args, **kwargs)
        bans.append({node.name for node in banned})
        return saved, banned

    def choice(kinds: compiler.NodeKinds, forward: list[Any], backward: list[Any]) -> list[fx.Node]:
        flat = flat_graph(kinds, forward, backward)
        saved = torchs_choice(kinds.graph, kinds.info)
        found.append(_Torchs({node.name for node in saved}, bans[-1], flat))
        return saved

    partitioners.solve_min_cut = solver
    try:
        compiler.partition(choice, copy.deepcopy(joint.gm), joint.inputs, **joint.kwargs)
    finally:
        partitioners.solve_min_cut = torchs_solver
    return found[0]


def measured(name: str, joint: _Joint, rounds: int) -> CutRow:
    """One model."""
    torchs = torch_choice(joint)
    flat = torchs.flat
    answer = plan(flat)
    graph = Weighed.of(flat, answer["banned"])
    network = graph.network()
    passes: dict[str, list[float]] = {"ours": [], "torchs": []}
    cut = joint.ours()[1]
    if cut.cost != answer["cost"]:
        raise remat.RematError(f"{name}: the pass cuts {cut.cost}, the same graph by itself {answer['cost']}")
    for turn in range(rounds):
        for peer in in_turn(["ours", "torchs"], turn):
            passes[peer].append(joint.ours()[0] if peer == "ours" else joint.torchs())
    plans = [timed(lambda: plan(flat)) for _ in range(max(5, rounds))]
    networkx = [timed(lambda: nx.minimum_cut_value(network, "source", "sink")) for _ in range(rounds)]
    # Before 2.15, torch asked networkx for the cut.
    torchs_cut = getattr(partitioners, "minimum_cut", nx.minimum_cut)
    torch_solver = [timed(lambda: torchs_cut(network, "source", "sink")) for _ in range(rounds)]
    wanted = graph.wanted()
    cost, violations = graph.cost_of(torchs.saved)
    ours_bans, torch_bans = set(answer["banned"]) & wanted, torchs.banned & wanted - set(graph.inputs)
    return CutRow(
        model=name,
        nodes=len(flat.description["nodes"]),
        vertices=network.number_of_nodes(),
        edges=network.number_of_edges(),
        cost=answer["cost"],
        networkx_cost=networkx[0][1],
        torch_cost=cost,
        torch_recomputes_banned=violations,
        bans=len(ours_bans),
        torch_bans=len(torch_bans),
        bans_only_ours=len(ours_bans - torch_bans),
        bans_only_torchs=len(torch_bans - ours_bans),
        solver_s=median(made["seconds"] for _, made in plans),
        plan_cut_s=median(seconds for seconds, _ in plans),
        networkx_s=median(seconds for seconds, _ in networkx),
        torch_solver_s=median(seconds for seconds, _ in torch_solver),
        pass_s=median(passes["ours"]),
        torch_pass_s=median(passes["torchs"]),
        only_ours=sorted(f"{name} ({answer['banned'][name]})" for name in ours_bans - torch_bans),
        only_torchs=sorted(torch_bans - ours_bans),
    )


def plan(flat: FlatGraph) -> dict[str, Any]:
    """Our solver, JSON to and fro included."""
    return json.loads(_native.plan_cut(flat.json(), allow=flat.allowed))


def timed(fn: Callable[[], Any]) -> tuple[float, Any]:
    """Seconds and result."""
    start = process_time()
    result = fn()
    return process_time() - start, result


@dataclass
class Weighed:
    """A flat graph with its bans, and capacities by rules written down once more, apart from the planner's."""

    nodes: dict[str, dict[str, Any]]
    inputs: list[str]
    banned: set[str]
    #: What can be computed without tangents.
    forward: set[str]
    #: Of these, what the backward pass reads or returns.
    needed: set[str]
    capacity: dict[str, float]

    @classmethod
    def of(cls, flat: FlatGraph, banned: Iterable[str]) -> Weighed:
        """From the description."""
        description = flat.description
        nodes = {node["name"]: node for node in description["nodes"]}
        users: dict[str, list[str]] = {name: [] for name in nodes}
        late = set(description["tangents"])
        for name, node in nodes.items():
            for read in node["inputs"]:
                users[read].append(name)
            if not late.isdisjoint(node["inputs"]):
                late.add(name)
        returned = set(description["backward_outputs"])
        backward: set[str] = set()
        for name in reversed(nodes):
            if name in late and (name in returned or not backward.isdisjoint(users[name])):
                backward.add(name)
        written = set(description["inputs"]) | set(description["forward_outputs"])
        capacity = {}
        for name, node in nodes.items():
            fused = node["fusible"] and all(nodes[user]["fusible"] for user in users[name])
            twice = 1 if name in written or not fused else 2
            capacity[name] = twice * node["bytes"] if node["savable"] else math.inf
        forward = {name for name in nodes if name not in late}
        needed = {name for name in forward if name in returned or not backward.isdisjoint(users[name])}
        return cls(nodes, description["inputs"], set(banned), forward, needed, capacity)

    def network(self) -> nx.DiGraph:
        """The auxiliary graph of algorithm 1: an edge for each node, cut where it is saved."""
        graph = nx.DiGraph()
        graph.add_nodes_from(["source", "sink"])
        for name in self.forward:
            capacity = self.capacity[name]
            graph.add_edge((name, "in"), (name, "out"), **({} if math.isinf(capacity) else {"capacity": capacity}))
            for read in self.nodes[name]["inputs"]:
                graph.add_edge((read, "out"), (name, "in"))
        for name in (self.banned | set(self.inputs)) & self.forward:
            graph.add_edge("source", (name, "in"))
        for name in self.needed:
            graph.add_edge((name, "out"), "sink")
        return graph

    def wanted(self) -> set[str]:
        """Nodes of the forward pass that matter to the cut: the backward pass needs them, or what they lead to."""
        wanted = set(self.needed)
        for name in reversed(self.nodes):
            if name in wanted:
                wanted.update(self.nodes[name]["inputs"])
        return wanted

    def cost_of(self, saved: set[str]) -> tuple[int | None, int]:
        """Capacities of what is read where these are saved, and how many banned nodes are recomputed then."""
        wanted, cost, violations = set(self.needed), 0.0, 0
        for name in reversed(self.nodes):
            if name not in wanted:
                continue
            if name in saved or name in self.inputs:
                cost += self.capacity[name]
                continue
            violations += name in self.banned
            wanted.update(self.nodes[name]["inputs"])
        return (None if math.isinf(cost) else int(cost)), violations
