"""Ctrl-C while a joint graph is planned."""

from __future__ import annotations

from pathlib import Path

from process import PYTHON, program, ran_warm

# A graph whose plans within a budget take many seconds to look for: ops in a mesh, none of them free.
INTERRUPTED = """
import json, signal, threading, time
from remat import _native

wide, deep = 60, 60
nodes = [{"name": f"n0_{j}", "bytes": 1000 + 7 * j, "inputs": [], "op": "placeholder"} for j in range(wide)]
for i in range(1, deep):
    for j in range(wide):
        reads = sorted({f"n{i - 1}_{j}", f"n{i - 1}_{(j * 7 + i) % wide}"})
        size = 1000 + (i * 37 + j * 101) % 997
        made = {"op": "sin", "fusible": j % 3 == 0, "cost": size}
        nodes.append({"name": f"n{i}_{j}", "bytes": size, "inputs": reads, **made})
nodes.append({"name": "tangent", "bytes": 8, "inputs": [], "op": "placeholder"})
for i in reversed(range(deep)):
    for j in range(wide):
        later = "tangent" if i == deep - 1 else f"b{i + 1}_{j}"
        reads = [later, f"n{i}_{j}"]
        made = {"op": "mul", "fusible": j % 2 == 0, "cost": 1000}
        nodes.append({"name": f"b{i}_{j}", "bytes": 1000, "inputs": reads, **made})
graph = json.dumps({
    "nodes": nodes,
    "inputs": [f"n0_{j}" for j in range(wide)],
    "tangents": ["tangent"],
    "forward_outputs": [f"n{deep - 1}_{j}" for j in range(wide)],
    "backward_outputs": [f"b0_{j}" for j in range(wide)],
})
sent, ended = [], threading.Event()
clock = time.pthread_getcpuclockid(threading.main_thread().ident)  # other work on the machine does not count
began = time.clock_gettime(clock)

def interrupt():
    while time.clock_gettime(clock) < began + 0.5:
        if ended.wait(0.01):
            return
    sent.append(time.clock_gettime(clock))
    signal.raise_signal(signal.SIGINT)

thread = threading.Thread(target=interrupt)
thread.start()
try:
    _native.plan_cut(graph, budget=3_000_000)
    print("planned before it was interrupted")
except KeyboardInterrupt:
    print("interrupted", time.clock_gettime(clock) - sent[0] < 1)
ended.set()
thread.join()
x = {"name": "x", "bytes": 4, "inputs": [], "op": "placeholder"}
y = {"name": "y", "bytes": 4, "inputs": ["x"], "op": "sin", "fusible": True}
small = {"nodes": [x, y], "inputs": ["x"], "tangents": [], "forward_outputs": ["y"], "backward_outputs": []}
print(json.loads(_native.plan_cut(json.dumps(small), budget=100))["saved"])
"""


def test_a_plan_is_given_up_within_a_second_and_the_next_is_made(tmp_path: Path) -> None:
    ended = ran_warm([*PYTHON, program(tmp_path, INTERRUPTED)])
    assert ended.out == "interrupted True\n[]\n", ended.err


COMPILED = """
import signal, torch, remat
from torch._functorch import partitioners
from remat import _native

torchs, planner = partitioners.choose_saved_values_set, _native.plan_cut

def interrupted(*args, **kwargs):
    # Where the signal finds a native call: at its next look.
    signal.raise_signal(signal.SIGINT)
    return planner(*args, **kwargs)

x = torch.ones(8, requires_grad=True)
run = remat.compile(lambda x: x.sin().exp().cos(), options={"force_disable_caches": True})
_native.plan_cut = interrupted
try:
    run(x)
except KeyboardInterrupt:
    print("interrupted")
_native.plan_cut = planner
print(partitioners.choose_saved_values_set is torchs)
run(x).sum().backward()
print(len(run.report().cuts))
"""


def test_compiling_is_given_up_and_nothing_of_torchs_stays_exchanged(tmp_path: Path) -> None:
    ended = ran_warm([*PYTHON, program(tmp_path, COMPILED)])
    assert ended.out == "interrupted\nTrue\n1\n", ended.err
