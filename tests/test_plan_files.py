"""Plans outlive the run that made them: in a cache that later runs find, and in files that they are given."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import remat
import torch
from bits import bits, differences
from process import PYTHON, REMAT, program, ran, ran_warm
from repeated_steps import LOOP, Trainer, budget_of, planned, until_planned

STEPS = 8


def train(budget: int, **settings: Any) -> tuple[remat.Run, list[object]]:
    trainer = Trainer()
    # Where costs are measured, a plan that saves little is tried by the clock.
    with remat.budget(budget, **{"costs": "bytes", "plan": "auto", **settings}) as run:
        for _ in range(STEPS):
            trainer.train()
    return run, bits(trainer.result())


def train_until_planned(budget: int, **settings: Any) -> remat.PlanStats:
    trainer = Trainer()
    # Where costs are measured, a plan that saves little is tried by the clock.
    with remat.budget(budget, **{"costs": "bytes", "plan": "auto", **settings}) as run:
        list(until_planned(run, trainer.train))
        return planned(run)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_second_run_follows_the_plan_of_the_first(cache: Path, way: str) -> None:
    budget = budget_of(0.6)
    first = train_until_planned(budget)
    assert (first.loaded, first.adopted) == (0, 1)
    run, found = train(budget)
    plan = run.stats().plan
    assert plan is not None
    assert (plan.loaded, plan.found) == (1, 0)
    # The first step makes the optimizer's state. Autograd adds gradients in place once Python refers to none of them,
    # which is so from the second step on.
    assert plan.steps >= STEPS - 2
    assert plan.planned_overhead == first.planned_overhead
    plain = Trainer()
    for _ in range(STEPS):
        plain.train()
    assert not differences(bits(plain.result()), found)
    assert run.stats().peak <= budget


def test_plans_of_another_budget_are_not_taken(cache: Path) -> None:
    train_until_planned(budget_of(0.6))
    run, _ = train(budget_of(0.6) + 4096)
    plan = run.stats().plan
    assert plan is not None and plan.loaded == 0


def test_no_plan_is_kept_where_the_cache_is_off(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMAT_CACHE", "off")
    train_until_planned(budget_of(0.6))
    assert not cache.exists()


def test_a_broken_plan_in_the_cache_is_told_of_and_made_anew(cache: Path) -> None:
    budget = budget_of(0.6)
    train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    kept.write_text('{"remat-planned-steps": 1')
    with pytest.warns(RuntimeWarning, match=r"the step is planned anew, for in the cache is .*EOF"):
        plan = train_until_planned(budget)
    assert (plan.loaded, plan.adopted) == (0, 1)
    assert len(json.loads(kept.read_text())["steps"]) == 1


def test_damaged_plans_in_the_cache_are_told_of_once_and_removed(cache: Path) -> None:
    budget = budget_of(0.6)
    train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    name = kept.name[: -len("0123456789abcdef.json")]
    damaged = [kept.with_name(f"{name}{number:016x}.json") for number in range(2)]
    damaged[0].write_text('{"remat-planned-steps": 1')
    damaged[1].write_bytes(b"\xff\xfe")
    newer = kept.with_name(f"{name}{2:016x}.json")
    newer.write_text('{"remat-planned-steps": 2}')
    with pytest.warns(RuntimeWarning) as told:
        train(budget)
    lines = [str(warning.message) for warning in told]
    for path in damaged:
        assert any(str(path) in line and line.endswith("; it was removed") for line in lines), lines
    assert sorted(cache.rglob("*.json")) == sorted([newer, kept])
    with pytest.warns(RuntimeWarning) as told:
        train(budget)
    assert [str(warning.message) for warning in told if str(newer) not in str(warning.message)] == []


def test_a_kept_plan_of_other_times_is_followed_and_made_anew(cache: Path) -> None:
    budget = budget_of(0.6)
    first = train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    made = json.loads(kept.read_text())
    # As a machine would have made it that takes twice as long.
    slower = json.loads(kept.read_text())
    for name in ("cost_ns", "recompute_ns", "bound_ns", "online_cost_ns", "online_recompute_ns"):
        slower["steps"][0][name] *= 2
    kept.write_text(json.dumps(slower))
    second = train_until_planned(budget)
    assert (second.loaded, second.found, second.adopted) == (1, 1, 1)
    assert second.steps >= 8
    assert second.planned_overhead == first.planned_overhead
    assert json.loads(kept.read_text())["steps"][0]["cost_ns"] == made["steps"][0]["cost_ns"]


def test_a_cache_that_cannot_be_written_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REMAT_CACHE", str(tmp_path / "file"))
    with pytest.warns(RuntimeWarning, match="plans are not kept in .*file"):
        assert train_until_planned(budget_of(0.6)).adopted == 1


@pytest.mark.parametrize("decorates", [False, True])
def test_what_is_wrong_with_plans_is_told_at_a_line_of_the_program(
    monkeypatch: pytest.MonkeyPatch, decorates: bool
) -> None:
    monkeypatch.setattr("remat._online.run._Mode.close_plans", lambda _: ["plans are not kept"])
    decorated = remat.budget("64MiB")(list)
    with pytest.warns(RuntimeWarning, match="remat: plans are not kept") as told:
        if decorates:
            decorated()
        else:
            with remat.budget("64MiB"):
                pass
    assert [warning.filename for warning in told] == [__file__]


def test_the_command_tells_at_no_line_what_is_wrong_with_plans(tmp_path: Path) -> None:
    text = "from remat._online import run; run._Mode.close_plans = lambda _: ['plans are not kept']"
    ended = ran_warm([*REMAT, "run", "--budget", "64MiB", program(tmp_path, text)])
    (line,) = (line for line in ended.err.splitlines() if "RuntimeWarning: remat: plans are not kept" in line)
    assert ".py" not in line
    assert "return run(" not in ended.err


def test_the_cache_keeps_the_plans_used_last(cache: Path) -> None:
    budget = budget_of(0.6)
    train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    for number in range(300):
        other = kept.with_name(f"cpu-1-{number:016x}.json")
        other.write_text("{}")
        os.utime(other, (number, number))
    kept.unlink()
    train_until_planned(budget)
    left = {path.name for path in cache.rglob("*.json")}
    assert len(left) == 256 and kept.name in left
    assert f"cpu-1-{299:016x}.json" in left and f"cpu-1-{0:016x}.json" not in left


def test_the_cache_removes_what_killed_processes_left_of_plans(cache: Path) -> None:
    budget = budget_of(0.6)
    train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    left, being_written = (kept.with_name(f"{kept.name}{end}") for end in (".partial", ".1.partial"))
    for part in (left, being_written):
        part.write_text("{")
    os.utime(left, (0, 0))
    kept.unlink()
    train_until_planned(budget)
    assert sorted(kept.parent.iterdir()) == sorted([kept, being_written])


def test_plans_of_another_format_are_not_looked_for(cache: Path) -> None:
    budget = budget_of(0.6)
    train_until_planned(budget)
    (kept,) = cache.rglob("*.json")
    version, rest = kept.name.split("-", 1)
    assert version == f"v{json.loads(kept.read_text())['remat-planned-steps']}"
    kept.rename(kept.with_name(f"v0-{rest}")).write_text('{"remat-planned-steps": 0}')
    assert train_until_planned(budget).loaded == 0


SCRIPT = """
    import sys, remat, torch
    torch.set_num_threads(1)
    from repeated_steps import Trainer, until_planned
    budget, trace, settings = int(sys.argv[1]), sys.argv[2], dict(word.split("=") for word in sys.argv[3:])
    trainer = Trainer()
    with remat.budget(budget, costs="bytes", trace=trace, **settings) as run:
        if "plan_out" in settings:
            list(until_planned(run, trainer.train))
        for _ in range(7):
            trainer.train()
    print(run.stats().plan.steps)
"""


def test_runs_that_follow_a_given_plan_decide_alike(tmp_path: Path) -> None:
    script = program(tmp_path, SCRIPT)
    budget, plan = str(budget_of(0.5)), str(tmp_path / "plan.json")
    made = ran_warm([*PYTHON, script, budget, str(tmp_path / "made.jsonl"), f"plan_out={plan}"])
    assert made.code == 0, made.err
    traces = []
    for number in range(2):
        trace = tmp_path / f"{number}.jsonl"
        followed = ran([*PYTHON, script, budget, str(trace), f"plan={plan}"])
        assert followed.code == 0, followed.err
        assert int(followed.out) >= 4
        traces.append(trace.read_bytes())
    assert traces[0] == traces[1]


def test_the_command_writes_plans_and_follows_them(tmp_path: Path) -> None:
    script = program(tmp_path, LOOP)
    plan = tmp_path / "plan.json"
    # Where costs are measured, a plan is given up whose ops take longer than when it was made.
    run = [*REMAT, "run", "--budget", "3MiB", "--costs", "bytes"]
    made = ran_warm([*run, "--plan-out", str(plan), script, str(plan)])
    assert made.code == 0, made.err
    assert json.loads(plan.read_text())["steps"]
    followed = ran_warm([*run, "--plan", str(plan), script])
    assert followed.code == 0, followed.err
    assert followed.out == made.out
    counts = re.search(r"(\d+) steps as planned", followed.err)
    assert counts is not None and int(counts[1]) >= 8, followed.err


def test_a_run_without_a_plan_writes_none(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text("of another run")
    with remat.budget("1GiB", plan_out=plan):
        Trainer().train()
    assert json.loads(plan.read_text()) == {
        "remat-planned-steps": 1,
        "device": "cpu",
        "budget_bytes": 1 << 30,
        "steps": [],
    }


def test_links_stay_and_pipes_are_written_into(tmp_path: Path) -> None:
    link, pipe = tmp_path / "link.json", tmp_path / "pipe"
    link.symlink_to("plan.json")
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR)  # there is one, so that nobody waits for it
    with remat.budget("1GiB", plan_out=link, trace=pipe):
        torch.ones(3).add(1)
    assert link.is_symlink() and json.loads((tmp_path / "plan.json").read_text())["steps"] == []
    assert pipe.is_fifo() and b'"end"' in os.read(reader, 1 << 16)
    os.close(reader)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.json", "pipe", "plan.json"]


def test_a_budget_below_that_of_the_given_plan_leaves_all_to_the_policy(tmp_path: Path) -> None:
    budget, smaller, plan = budget_of(0.6), budget_of(0.5), tmp_path / "plan.json"
    train_until_planned(budget, plan_out=plan)
    trainer = Trainer()
    with remat.budget(budget, plan=plan, costs="bytes") as run:
        for _ in range(6):
            trainer.train()
        before = planned(run).steps
        run.set_budget(smaller)
        for _ in range(3):
            trainer.train()
        assert planned(run).steps == before >= 2
        run.set_budget(budget)
        for _ in range(3):
            trainer.train()
        assert planned(run).steps >= before + 2


def given(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    """A plan with one step, and a change of it."""

    def write(path: Path) -> None:
        step = {
            **dict.fromkeys(("cost_ns", "recompute_ns", "bound_ns", "online_cost_ns", "online_recompute_ns"), 10),
            "signatures": ["a", "b"],
            "actions": [[1, "run", 0]],
        }
        plan = {"remat-planned-steps": 1, "device": "cpu", "budget_bytes": 1 << 20, "steps": [step]}
        change(plan)
        path.write_text(json.dumps(plan))

    return write


@pytest.mark.parametrize(
    ("write", "complaint"),
    [
        (lambda path: None, "there is no such file"),
        (lambda path: path.write_text("{"), "EOF while parsing"),
        (lambda path: path.write_text('{"remat-step-plan": 1}'), "a plan of a recorded step"),
        (lambda path: path.write_text("{}"), "missing field `remat-planned-steps`"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "UTF-8"),
        (lambda path: path.mkdir(), "[Ii]s a directory"),
        (given(lambda plan: plan.update({"remat-planned-steps": 2})), "version 2"),
        (
            given(lambda plan: plan.update(budget_bytes=1 << 40)),
            "the plan is for 1.00 TiB on cpu, the budget is",
        ),
        (
            given(lambda plan: plan.update(device="cuda:0")),
            "the plan is for 1.00 MiB on cuda:0, the budget is",
        ),
        (given(lambda plan: plan["steps"][0].update(signatures=["x", "y"])), "no number"),
        (given(lambda plan: plan["steps"][0].update(signatures=["+3", "b"])), "no number"),
        (given(lambda plan: plan["steps"][0].update(signatures=[])), "an action is before op 1"),
        (given(lambda plan: plan["steps"][0].update(actions=[[0, "run", 0]])), "of ops before it"),
        (given(lambda plan: plan["steps"][0].update(actions=[[4294967295, "run", 0]])), "before op 4294967295"),
        (given(lambda plan: plan["steps"][0].update(actions=[[1, "keep", 0]])), "did not match any variant"),
    ],
)
def test_files_that_hold_no_plan_are_refused(write: Callable[[Path], object], complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    write(path)
    with pytest.raises(ValueError, match=complaint) as refused, remat.budget("1GiB", plan=path):
        pass
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "code", "complaint"),
    [
        ({"budget_bytes": 1 << 40}, 2, "the plan is for 1.00 TiB on cpu, the budget is 1.00 MiB on cpu"),
        ({"device": "cuda:0"}, 0, "the plan was not followed: it is for cuda:0, and the budget was on cpu"),
    ],
    ids=["a larger budget", "another device"],
)
def test_a_run_says_that_its_plan_is_for_something_else(
    change: dict[str, Any], code: int, complaint: str, tmp_path: Path
) -> None:
    """No device is named: where there is an accelerator, the budget goes with the program."""
    plan = tmp_path / "plan.json"
    given(lambda plan: plan.update(change))(plan)
    ended = ran([*REMAT, "run", "--budget", "1MiB", "--plan", plan, "-c", "import torch; torch.ones(4) + 1"])
    assert ended.code == code
    assert complaint in ended.err


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"plan": "off"}, "with plan 'off' no plan is made"),
        ({"plan": __file__}, "is followed and none is made"),
        ({"pool": "arena"}, "plans of an arena are for one run"),
        ({}, "cannot write the plan to .*: No such file or directory"),
    ],
)
def test_plans_are_not_written_where_none_is_made(settings: dict[str, str], complaint: str) -> None:
    with (
        pytest.raises(ValueError, match=complaint),
        remat.budget("1GiB", plan_out="no/such/folder/plan.json", **settings),  # type: ignore[arg-type]
    ):
        pass


def test_a_given_plan_that_fits_nothing_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    given(lambda plan: None)(path)
    run, found = train(budget_of(0.6), plan=path)
    plan = run.stats().plan
    assert plan is not None and (plan.loaded, plan.found, plan.steps) == (1, 0, 0)
    assert run.stats().recomputed > 0
    plain = Trainer()
    for _ in range(STEPS):
        plain.train()
    assert not differences(bits(plain.result()), found)
