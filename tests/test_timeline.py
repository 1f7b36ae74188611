"""Timelines of runs: what they say is what the run did, in each of the three formats, however the run ends."""

from __future__ import annotations

import gc
import inspect
import json
import os
import pickle
import re
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from browser import browser
from process import REMAT, program, ran, ran_warm, signalled
from remat import _native
from remat._timeline.recording import EVICTED, OP, REPLAY, Recording
from remat._torch_internals import eager
from torch import Tensor, nn
from torch.cuda import _memory_viz
from torch.optim.optimizer import _global_optimizer_post_hooks, _global_optimizer_pre_hooks
from torch.utils.checkpoint import checkpoint

WIDTH, BATCH, STEPS = 96, 512, 6


class Block(nn.Module):
    """A layer whose activations are what a budget drops."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).tanh() + x


LINE = inspect.getsourcelines(Block.forward)[1] + 1


def training(layers: int = 8) -> Callable[[], float]:
    torch.manual_seed(0)
    model = nn.Sequential(*(Block() for _ in range(layers)))
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    data = torch.randn(BATCH, WIDTH)

    def step() -> float:
        loss = model(data).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def told(path: Path) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="run">(.*?)</script>', path.read_text(), re.DOTALL)
    assert found is not None
    run: dict[str, Any] = json.loads(found[1])
    return run


def budget_of(step: Callable[[], float]) -> int:
    step()
    return remat.measure(step).fraction(0.5)


def recorded(path: Path, steps: int = STEPS) -> tuple[remat.Stats, list[float]]:
    budget = budget_of(training())
    step = training()
    with remat.budget(budget, costs="bytes", timeline=path) as run:
        losses = [step() for _ in range(steps)]
    return run.stats(), losses


def level_of(step: dict[str, Any], recording: Recording) -> tuple[int, list[int], list[int]]:
    """The peak of a step, and the bytes of each kind there and at its end, by the walk through its events."""
    peak, there, ran, workspace = 0, [0], -1.0, 0
    level = [0]
    for moment, level in recording.walk(step):
        if moment.code in (OP, REPLAY):
            ran, workspace = moment.at, moment.workspace
        elif moment.at != ran:
            workspace = 0
        if sum(level) + workspace > peak:
            peak, there = sum(level) + workspace, list(level)
    return peak, there, list(level)


def test_a_timeline_adds_up_to_what_the_run_counted(tmp_path: Path, way: str) -> None:
    stats, losses = recorded(tmp_path / "run.html")
    run = told(tmp_path / "run.html")
    lines = run["steps"]
    assert stats.evictions > 0
    assert stats.recomputed > 0
    assert sum(lines["replays"]) == stats.recomputed == sum(run["costs"]["replays"])
    # Values that replays alone need are dropped too, and not marked.
    assert 0 < sum(lines["evictions"]) == sum(run["costs"]["evictions"]) <= stats.evictions
    peaks = [sum(column) + workspace for *column, workspace in zip(*lines["peak"], lines["workspace"], strict=True)]
    assert max(peaks) == stats.peak <= (stats.budget or 0)
    assert run["run"]["peak"] == stats.peak
    assert run["count"] == STEPS
    assert sum(lines["count"]) == STEPS
    assert losses == [step() for step in [training()] for _ in range(STEPS)]


def test_the_walk_through_a_kept_step_meets_its_peak(tmp_path: Path) -> None:
    recorded(tmp_path / "run.html")
    recording = Recording(told(tmp_path / "run.html"))
    lines = recording.told["steps"]
    assert [step["number"] for step in recording.steps][:1] == [1]
    assert recording.steps[-1]["number"] == STEPS
    for step in recording.steps:
        at = lines["number"].index(step["number"])
        peak, there, _ = level_of(step, recording)
        assert peak == sum(column[at] for column in lines["peak"]) + lines["workspace"][at]
        assert there == [column[at] for column in lines["peak"]]
        codes = Counter(step["code"])
        assert (codes[EVICTED], codes[REPLAY], codes[OP]) == tuple(
            lines[key][at] for key in ("evictions", "replays", "ops")
        )


def bytes_of_parameters() -> int:
    """Bytes of all parameters in the process: other tests may have left some, which count in every run."""
    gc.collect()
    left = [one for one in gc.get_objects() if issubclass(type(one), nn.Parameter) and one.device.type == "cpu"]
    storages = [one.untyped_storage() for one in left]
    return sum({storage._cdata: storage.nbytes() for storage in storages}.values())


def test_memory_is_of_the_kinds_that_it_is_for(tmp_path: Path, way: str) -> None:
    others = bytes_of_parameters()
    recorded(tmp_path / "run.html")
    recording = Recording(told(tmp_path / "run.html"))
    *_, level = level_of(recording.steps[-1], recording)
    kinds = dict(zip(recording.kinds, level, strict=True))
    parameters = 4 * 8 * (WIDTH * WIDTH + WIDTH)
    assert kinds["parameters"] - others == parameters
    # Adam keeps two averages of each parameter, and a count.
    assert kinds["optimizer state"] == 2 * parameters + 4 * 16
    peaks = dict(zip(recording.kinds, recording.told["steps"]["peak"], strict=True))
    assert max(peaks["activations"]) >= 4 * BATCH * WIDTH * 4
    most = {kind: 0 for kind in recording.kinds}
    for _, level in recording.walk(recording.steps[-1]):
        most = {kind: max(most[kind], size) for kind, size in zip(recording.kinds, level, strict=True)}
    assert most["gradients"] == parameters


def test_backward_ops_and_replays_are_of_the_module_and_line_of_their_forward_op(tmp_path: Path, way: str) -> None:
    recorded(tmp_path / "run.html")
    recording = Recording(told(tmp_path / "run.html"))
    for step in recording.steps:
        places = [(code, recording.place(of)) for code, of in zip(step["code"], step["of"], strict=True) if code < 2]
        forward = [place for code, place in places if code == OP and "tanh" in place[0] and place[1] == "forward"]
        backward = [place for code, place in places if code == OP and "tanh_backward" in place[0]]
        assert [place[2] for place in forward] == [f"Sequential/{layer} (Block)" for layer in range(8)]
        assert [place[2:] for place in backward] == [place[2:] for place in reversed(forward)]
        assert {(Path(place[3]).name, place[4], place[5]) for place in forward} == {
            (Path(__file__).name, LINE, "forward")
        }
        replayed = [place for code, place in places if code == REPLAY]
        assert replayed
        assert all(place[3] == __file__ for place in replayed)
    updates = [place for _, place in places if place[1] == "update"]
    assert updates
    assert {place[2] for place in updates} == {"optimizer (Adam)"}


def test_recomputed_forward_passes_and_closures_keep_modules_and_lines(tmp_path: Path) -> None:
    block = Block()
    optimizer = torch.optim.LBFGS(block.parameters(), max_iter=1)
    data = torch.randn(BATCH, WIDTH)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = checkpoint(block, data, use_reentrant=False).square().mean()
        loss.backward()
        return loss

    with remat.budget("1GiB", timeline=tmp_path / "run.html"):
        optimizer.step(closure)
    recording = Recording(told(tmp_path / "run.html"))
    (step,) = recording.steps
    places = [recording.place(of) for code, of in zip(step["code"], step["of"], strict=True) if code == OP]
    found = {place[:3] for place in places if place[4] == LINE and "tanh" in place[0]}
    names = (
        ("aten.tanh.default", "update"),
        ("aten.tanh.default", "backward"),
        ("aten.tanh_backward.default", "backward"),
    )
    assert found == {(*name, "Block") for name in names}


def test_autograds_next_node_is_told_as_torch_tells_it() -> None:
    assert eager.passes_known() is None
    for _ in range(2):
        assert _native.read_next_node() == torch._C._autograd._get_sequence_nr()
        torch.ones(1, requires_grad=True) * 2


def test_a_step_is_what_the_program_marks_as_one(tmp_path: Path) -> None:
    step = training()
    with remat.budget("1GiB", timeline=tmp_path / "run.html") as run:
        for _ in range(3):
            run.step()
            step()
            step()
    run_told = told(tmp_path / "run.html")
    assert run_told["count"] == 3
    assert run_told["run"]["evictions"] == 0


def test_a_program_without_an_optimizer_has_steps_that_end_with_a_backward_pass(tmp_path: Path) -> None:
    weight = torch.ones(64, 64, requires_grad=True)
    with remat.budget("1GiB", timeline=tmp_path / "run.html"):
        for _ in range(4):
            (weight @ weight).sum().backward()
            with torch.no_grad():
                weight -= 0.1 * weight.grad
                weight.grad = None
    assert told(tmp_path / "run.html")["count"] in (4, 5)  # the last update may be a piece of its own


def test_a_long_run_and_a_long_step_stay_in_a_small_file(tmp_path: Path) -> None:
    x = torch.ones(64, 64)
    with remat.budget("1GiB", timeline=tmp_path / "run.html") as run:
        for _ in range(70_000):
            x.neg()
        for _ in range(5_000):
            run.step()
            x.neg()
    assert (tmp_path / "run.html").stat().st_size <= 20_000_000
    run_told = told(tmp_path / "run.html")
    lines = run_told["steps"]
    assert len(lines["number"]) <= 4096
    assert sum(lines["ops"]) == 75_000
    assert len(run_told["kept"]) <= 10
    assert 40_000 < max(step["code"].count(OP) for step in run_told["kept"]) <= 1 << 16  # the rest is a step of its own


REFUSED = {
    "an unknown suffix": ("run.svg", "ends in .html (a page), .json (a trace for Perfetto) or .pickle (a snapshot"),
    "no suffix": ("run", "expected a name that ends in .html"),
    "a folder that is not there": ("/no/such/folder/run.html", "cannot write the timeline '/no/such/folder/run.html'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_file_that_cannot_be_is_refused_before_the_run(name: str) -> None:
    file, why = REFUSED[name]
    ended = ran([*REMAT, "run", "--budget", "1GiB", "--timeline", file, "-c", "print('ran')"])
    assert (ended.code, ended.out) == (2, "")
    assert why in ended.err
    assert len(ended.error_lines) == 1, ended.err


@pytest.mark.parametrize("suffix", ["html", "json", "pickle"])
def test_programs_whose_name_is_no_utf8_have_timelines(tmp_path: Path, suffix: str) -> None:
    script = program(tmp_path, "import torch; torch.ones(64).exp(); print('ran')", os.fsdecode(b"n\xff.py"))
    file = tmp_path / f"run.{suffix}"
    ended = ran_warm([*REMAT, "run", "--budget", "1GiB", "--timeline", file, script])
    assert (ended.code, ended.out) == (0, "ran\n"), ended.err
    if suffix == "html":
        assert told(file)["run"]["argv"] == [rf"{tmp_path}/n\udcff.py"]
        assert rf"{tmp_path}/n\udcff.py" in told(file)["sites"]["file"]
    else:
        assert rb"n\udcff.py" in file.read_bytes().replace(rb"\\", b"\\")


def test_hooks_go_with_the_budget_and_the_timeline(tmp_path: Path) -> None:
    def hooks() -> tuple[int, int]:
        return len(_global_optimizer_pre_hooks), len(_global_optimizer_post_hooks)

    before = hooks()
    with remat.budget("1GiB"):
        assert hooks() == (before[0], before[1] + 1)  # it looks at what optimizers keep
    assert hooks() == before
    recorded(tmp_path / "run.html", steps=1)
    assert hooks() == before


ENDLESS = """
    import time, torch
    weight = torch.ones(64, 64, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)

    @torch.library.custom_op("timeline::waits", mutates_args=())
    def waits(x: torch.Tensor) -> torch.Tensor:
        print("ready", flush=True)
        while True:
            time.sleep(0.01)

    for _ in range(3):
        weight.exp().sum().backward()
        optimizer.step()
    {then}
"""
BETWEEN = 'print("ready", flush=True)\n    while True: weight.exp()'
AMID = "waits(weight.detach())"


ENDS = {
    "Ctrl-C between ops": (signal.SIGINT, BETWEEN),
    "SIGTERM amid an op": (signal.SIGTERM, AMID),
    "Ctrl-C amid an op": (signal.SIGINT, AMID),
    "SIGTERM between ops": (signal.SIGTERM, BETWEEN),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.full if at > 1 else []) for at, name in enumerate(ENDS)]
)
def test_signals_still_write_the_file(tmp_path: Path, name: str) -> None:
    number, then = ENDS[name]
    script, file = program(tmp_path, ENDLESS.format(then=then)), tmp_path / "run.html"
    ended = signalled([*REMAT, "run", "--budget", "1GiB", "--timeline", file, script], number, "ready")
    assert ended.code == -number if number == signal.SIGTERM else ended.code != 0
    run = told(file)
    assert run["count"] >= 3
    assert run["steps"]["ops"][0] > 0
    assert "remat: " in ended.err  # the report comes as well


def test_sigterm_writes_the_file_of_a_context_manager(tmp_path: Path) -> None:
    source = """
        import sys, remat, torch
        with remat.budget("1GiB", timeline=sys.argv[1]):
            torch.ones(64).exp()
            print("ready", flush=True)
            while True: torch.ones(64)
    """
    script, file = program(tmp_path, source), tmp_path / "run.json"
    ended = signalled([*REMAT[:1], script, file], signal.SIGTERM, "ready")
    assert ended.code == -signal.SIGTERM
    assert json.loads(file.read_text())["traceEvents"]


def test_a_trace_has_ops_replays_evictions_and_counters_of_kinds(tmp_path: Path) -> None:
    stats, _ = recorded(tmp_path / "run.json")
    trace = json.loads((tmp_path / "run.json").read_text())
    events = trace["traceEvents"]
    by_thread = Counter((event["ph"], event["tid"]) for event in events)
    assert by_thread["X", 1] == STEPS
    assert by_thread["X", 2] > 0 < by_thread["X", 3]
    assert by_thread["i", 4] > 0
    for event in events:
        assert {"ph", "name", "ts", "pid", "tid"} <= event.keys()
        assert ("dur" in event) == (event["ph"] == "X")
    counters = [event["args"] for event in events if event["name"] == "bytes by kind"]
    assert set(counters[0]) == {
        "parameters", "gradients", "optimizer state", "activations", "temporaries", "other"
    }  # fmt: skip
    assert max(sum(values.values()) for values in counters) <= stats.peak
    backward = next(event for event in events if event["name"] == "aten.tanh_backward.default")
    assert backward["args"]["module"].endswith("(Block)")
    assert backward["args"]["line"].endswith(f"test_timeline.py:{LINE} in forward")


def test_a_trace_is_written_where_the_working_folder_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, file = tmp_path / "gone", tmp_path / "run.json"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with remat.budget("64MiB", timeline=file):
        torch.ones(100).add(1)
        folder.rmdir()
    events = json.loads(file.read_text())["traceEvents"]
    lines = [event["args"]["line"] for event in events if event["name"].startswith("aten.add")]
    assert lines and all(line.startswith(f"{__file__}:") for line in lines)


def test_torchs_own_viewer_reads_a_snapshot(tmp_path: Path) -> None:
    stats, _ = recorded(tmp_path / "run.pickle")
    snapshot = pickle.loads((tmp_path / "run.pickle").read_bytes())
    trace = snapshot["device_traces"][0]
    level, most, there = 0, 0, {}
    for entry in trace:
        if entry["action"] == "alloc":
            there[entry["addr"]] = entry["size"]
            level += entry["size"]
        elif entry["action"] == "free_completed":
            level -= there.pop(entry["addr"])
        most = max(most, level)
    assert 0.8 * stats.peak <= most <= stats.peak
    assert sum(segment["total_size"] for segment in snapshot["segments"]) == level
    flat = {"format_flamegraph": lambda lines: lines}
    lines = _memory_viz.segments(snapshot, **flat)
    assert "[parameters]" in lines
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines.splitlines()) == level
    assert "[optimizer state]" in _memory_viz.memory(snapshot, **flat)
    assert f"segments: {len(snapshot['segments'])}" in _memory_viz.segsum(snapshot)
    assert not re.search(r"\b0 entries", _memory_viz.trace(snapshot))
    for page in (_memory_viz.trace_plot(snapshot), _memory_viz.segment_plot(snapshot)):
        assert "snapshot.pickle" in page
    kept = _memory_viz.filter_alloc_free_pairs(snapshot)["device_traces"][0]
    assert len(kept) == len(snapshot["segments"])


def test_the_page_answers_in_a_browser_and_asks_for_nothing_else(tmp_path: Path) -> None:
    recorded(tmp_path / "run.html")
    run = told(tmp_path / "run.html")
    with browser(tmp_path / "profile") as page:
        page.open(tmp_path / "run.html", "#step=1")
        assert page.value("document.getElementById('which').textContent") == "Step 1"
        assert page.value("document.querySelectorAll('canvas').length") == 2
        painted = """[...document.querySelectorAll('canvas')].map((canvas) => new Set(canvas.getContext('2d')
            .getImageData(0, 0, canvas.width, canvas.height).data).size)"""
        assert min(page.value(painted)) > 20  # shades
        # The pointer: bytes by kind, and the op with its module and line.
        page.value("document.getElementById('step').scrollIntoView({block: 'center'})")
        where = "(({left, top, width, height}) => [left + 0.5 * width, top + 0.4 * height])"
        x, y = page.value(f"{where}(document.getElementById('step').getBoundingClientRect())")
        page.point(x - 40, y)
        page.point(x, y)
        tip = "new Promise((done) => setTimeout(() => done(document.querySelector('#step .tip')?.innerText), 300))"
        text = page.value(tip)
        for word in ("aten.", "parameters", "of the budget", "test_timeline.py:"):
            assert word in text, text
        # Another step, by its button, and by a click among all steps.
        page.value("document.querySelectorAll('#kept button')[1].click()")
        assert page.value("document.getElementById('which').textContent") == f"Step {run['kept'][1]['number']}"
        page.value("document.getElementById('steps').scrollIntoView({block: 'center'})")
        inside = "(({left, top}) => [left + page.charts.steps.convertToPixel({gridIndex: 0}, [6, 0])[0], top + 70])"
        page.point(*page.value(f"{inside}(document.getElementById('steps').getBoundingClientRect())"), click=True)
        assert page.value("document.getElementById('which').textContent") == f"Step {STEPS}"
        # Zoom.
        assert page.value("page.zoom(0, page.state.step.took / 4); page.state.to / page.state.step.took") == 0.25
        # Tables.
        rows = "document.querySelectorAll('#costs tbody tr').length"
        assert page.value(rows) > 1
        page.value("document.querySelector('#by [data-by=line]').click()")
        assert f"test_timeline.py:{LINE}" in page.value("document.getElementById('costs').innerText")
        assert "parameters" in page.value("document.getElementById('held').innerText")
        assert page.errors == []
        assert [address for address in page.requests if not address.startswith(("file:", "data:", "about:"))] == []
