"""Minimum cuts of joint graphs: ours against torch's partitioner and against networkx.

    python benchmarks/cuts.py                      # all models
    python benchmarks/cuts.py --models gpt2 vit    # some
    python benchmarks/cuts.py --acquisition        # time and peak of a compiled acquisition function

No code is generated for the first two: each model's joint graph is traced as Inductor traces it and cut. A JSON object
a model goes to standard output, a table to standard error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import torch
from torch import nn
from torch._functorch import config, partitioners

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from compiled import _as_it_is
from remat import _compile_seam as seam
from remat import _native
from remat._cut import choose
from remat._joint_graph import flat_graph
from true_peak import true_peak

REPEATS = 5
TORCHS = partitioners.choose_saved_values_set  # exchanged for ours while a graph is cut


class Loss(nn.Module):
    """A language model and its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.model(tokens, labels=tokens).loss


def image(name: str, size: int = 64, **options: Any) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    def made() -> tuple[nn.Module, torch.Tensor]:
        import torchvision

        return getattr(torchvision.models, name)(num_classes=10, **options), torch.randn(2, 3, size, size)

    return made


def text(kind: str, **sizes: int) -> Callable[[], tuple[nn.Module, torch.Tensor]]:
    def made() -> tuple[nn.Module, torch.Tensor]:
        import transformers

        settings = getattr(transformers, f"{kind}Config")(vocab_size=512, **sizes)
        head = {"GPT2": "GPT2LMHeadModel"}.get(kind, f"{kind}ForMaskedLM")
        return Loss(getattr(transformers, head)(settings)), torch.randint(0, 512, (2, 32))

    return made


BERT = {"hidden_size": 64, "num_hidden_layers": 12, "num_attention_heads": 4, "intermediate_size": 256}
MODELS = {
    "resnet18": image("resnet18"),
    "densenet121": image("densenet121"),
    "mobilenet_v2": image("mobilenet_v2"),
    "vit_b_16": image("vit_b_16", image_size=64),
    "vgg16": image("vgg16"),
    "efficientnet_b0": image("efficientnet_b0"),
    "gpt2": text("GPT2", n_embd=64, n_layer=12, n_head=4),
    "albert": text("Albert", **BERT, embedding_size=32),
    "bert": text("Bert", **BERT),
}


def seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """The median."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def compared(kinds: seam.NodeKinds, forward: list[Any], backward: list[Any]) -> dict[str, Any]:
    """Our cut and torch's of one joint graph."""
    mine = choose(lambda cut: None)
    options = partitioners.MinCutOptions(
        config.ban_recompute_used_far_apart,
        config.ban_recompute_long_fusible_chains,
        config.ban_recompute_materialized_backward,
        config.ban_recompute_not_in_allowlist,
        config.ban_recompute_reductions,
    )
    theirs, banned = partitioners.solve_min_cut(kinds.graph, kinds.info, options)
    flat = flat_graph(kinds, forward, backward, timed=False)
    same = without_rules(flat.description)
    names = [node.name for node in banned if node.op == "call_function"]
    allow = [node.name for node in kinds.nodes() if node.op == "call_function" and node not in banned]
    cut = json.loads(_native.plan_cut(json.dumps(same), ban=names, allow=allow))
    network = flow_network(same, set(names))
    solver = min(
        json.loads(_native.plan_cut(json.dumps(same), ban=names, allow=allow))["seconds"] for _ in range(REPEATS)
    )
    start = time.perf_counter()
    value, _ = networkx.minimum_cut(network, "source", "sink")
    slow = time.perf_counter() - start
    return {
        "nodes": len(same["nodes"]),
        "cost_ours": cut["cost"],
        "cost_torch": sum(capacity(same, {node.name for node in theirs}).values()),
        "cost_networkx": value,
        "solver_ms": solver * 1e3,
        "networkx_ms": slow * 1e3,
        "solver_ratio": slow / solver,
        "choice_ms_ours": seconds(lambda: mine(type(kinds)(kinds.graph, kinds.info), forward, backward)) * 1e3,
        "choice_ms_torch": seconds(lambda: TORCHS(kinds.graph, kinds.info), 1) * 1e3,
    }


def without_rules(description: dict[str, Any]) -> dict[str, Any]:
    """The graph with no bans but those that are given."""
    quiet = {"compute_bound": False, "random": False, "reduction": False}
    return {**description, "nodes": [{**node, **quiet} for node in description["nodes"]]}


def capacity(description: dict[str, Any], names: set[str]) -> dict[str, int]:
    """What saving these nodes costs (algorithm 2)."""
    fusible = {node["name"]: node.get("fusible", False) for node in description["nodes"]}
    users: dict[str, list[str]] = {name: [] for name in fusible}
    for node in description["nodes"]:
        for read in node["inputs"]:
            users[read].append(node["name"])
    given = {*description["inputs"], *description["forward_outputs"]}

    def written(name: str) -> bool:
        return name in given or not fusible[name] or not all(fusible[user] for user in users[name])

    sizes = {node["name"]: node["bytes"] for node in description["nodes"]}
    return {name: sizes[name] * (1 if written(name) else 2) for name in names}


def flow_network(description: dict[str, Any], banned: set[str]) -> networkx.DiGraph:
    """The auxiliary graph of algorithm 1, for networkx; edges without a capacity are infinite."""
    nodes = {node["name"]: node for node in description["nodes"]}
    backward = set(description["tangents"])
    for name, node in nodes.items():
        if not backward.isdisjoint(node["inputs"]):
            backward.add(name)
    wanted = set(description["backward_outputs"])
    for name in reversed(list(nodes)):
        if name in wanted and name in backward:
            wanted.update(nodes[name]["inputs"])
    capacities = capacity(description, set(nodes) - backward)
    network = networkx.DiGraph()
    network.add_nodes_from(["source", "sink"])
    for name in nodes:
        if name in backward:
            continue
        if name in banned or name in description["inputs"]:
            network.add_edge("source", name + "_in")
        limit = {"capacity": capacities[name]} if nodes[name].get("savable", True) else {}
        network.add_edge(name + "_in", name + "_out", **limit)
        for read in nodes[name]["inputs"]:
            network.add_edge(read + "_out", name + "_in")
        if name in wanted:
            network.add_edge(name + "_out", "sink")
    return network


def traced(model: nn.Module, inputs: torch.Tensor) -> dict[str, Any]:
    """The comparison for the largest joint graph of a model."""
    found: list[dict[str, Any]] = []

    def chosen(kinds: seam.NodeKinds, forward: list[Any], backward: list[Any]) -> list[Any]:
        found.append(compared(kinds, forward, backward))
        return choose(lambda cut: None)(kinds, forward, backward)

    def backend(gm: torch.fx.GraphModule, example: Any) -> Any:
        from torch._inductor.compile_fx import compile_fx

        patches = {"custom_partitioner_fn": seam.Partitioner(chosen, lambda: b""), "force_disable_caches": True}
        return compile_fx(gm, example, inner_compile=_as_it_is, config_patches=patches)

    torch._dynamo.reset()
    torch.compile(model, backend=backend)(inputs)
    return max(found, key=lambda row: row["nodes"])


def acquisition() -> dict[str, Any]:
    """Time and peak of an acquisition function with and without recomputing."""
    from test_compile_runs import expected_improvement

    mean, deviation = torch.randn(512, 8, requires_grad=True), torch.rand(512, 8, requires_grad=True)
    draws = torch.randn(512, 8)
    row: dict[str, Any] = {"model": "acquisition"}
    ours = seam.Partitioner(choose(lambda cut: None), lambda: b"benchmark")
    for name, partitioner in (("plain", seam.without_recomputing()), ("ours", ours)):

        def backend(gm: torch.fx.GraphModule, example: Any, chosen: Any = partitioner) -> Any:
            return seam.compile_graph(gm, example, chosen, {})

        torch._dynamo.reset()
        run = torch.compile(expected_improvement, backend=backend)
        run(mean, deviation, draws).backward()
        with true_peak() as peak:
            run(mean, deviation, draws).backward()
        row[f"{name}_mib"] = (peak.highest - peak.base) / 2**20
        row[f"{name}_ms"] = seconds(lambda run=run: run(mean, deviation, draws).backward(), 20) * 1e3
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--acquisition", action="store_true")
    arguments = parser.parse_args()
    if arguments.acquisition:
        print(json.dumps(acquisition()), flush=True)
        return
    heads = ("model", "nodes", "cost/torch", "solver ms", "networkx ms", "ratio", "choice ms", "torch's ms")
    print(" | ".join(heads), file=sys.stderr)
    for name in arguments.models:
        torch.manual_seed(0)
        row = {"model": name, **traced(*MODELS[name]())}
        print(json.dumps(row), flush=True)
        print(
            f"{name} | {row['nodes']} | {row['cost_ours'] / row['cost_torch']:.4f} | {row['solver_ms']:.2f} | "
            f"{row['networkx_ms']:.0f} | {row['solver_ratio']:.0f} | {row['choice_ms_ours']:.0f} | "
            f"{row['choice_ms_torch']:.0f}",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
