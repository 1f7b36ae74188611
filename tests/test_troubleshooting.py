"""The page of messages: each one is in the source, and many are raised."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
import remat
import torch
from process import REMAT, environment
from torch import nn

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/how-to/troubleshooting.md").read_text()
MESSAGES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)


@cache
def sources() -> list[str]:
    """The text of each source file, with its string literals in one piece and without escapes."""
    files = [*ROOT.glob("crates/*/src/**/*.rs"), *ROOT.glob("crates/*/python/**/*.py")]
    return [joined(file.read_text()) for file in sorted(files)]


def joined(text: str) -> str:
    text = re.sub(r"\\\n\s*", "", text)
    text = re.sub(r"""["']\s*\n\s*f?["']""", "", text)
    return text.replace('\\"', '"').replace("{{", "{").replace("}}", "}")


def pieces(message: str) -> list[str]:
    """The parts that a message says whatever its names and numbers are."""
    return [piece.strip(" :;") for piece in message.split("...") if len(piece.strip(" :;")) > 2]


def in_order(text: str, message: str) -> bool:
    at = 0
    for piece in pieces(message):
        at = text.find(piece, at)
        if at < 0:
            return False
        at += len(piece)
    return True


@pytest.mark.parametrize("message", MESSAGES)
def test_a_message_is_in_the_source(message: str) -> None:
    assert max(map(len, pieces(message))) >= 12, "too little of it is fixed to be found"
    # The parts of one message may stand apart in a file, in any order.
    assert any(all(piece in text for piece in pieces(message)) for text in sources())


def told(*arguments: str) -> str:
    """The command's stderr, ending in an error."""
    done = subprocess.run([*REMAT, *arguments], capture_output=True, text=True, env=environment(), check=False)
    assert done.returncode in (1, 2), done.stdout
    return done.stderr


def raised(call: Callable[[], object]) -> str:
    with pytest.raises((remat.RematError, ValueError)) as caught:
        call()
    return str(caught.value)


def within(call: Callable[[remat.Run], object]) -> str:
    """The error of a call inside a budget."""

    def under() -> None:
        with remat.budget("64MiB") as run:
            call(run)

    return raised(under)


def too_little() -> None:
    with remat.budget("1MiB"):
        torch.ones(2**20)


def entered_and_left() -> remat.Run:
    with remat.budget("64MiB") as run:
        return run


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.layer(part) for part in x.chunk(2)])  # which torch.fx cannot trace


def hooked() -> object:
    model = Twice()
    model.register_forward_pre_hook(lambda *_: None)
    return remat.chain_of(model, torch.ones(2, 4))


TRACE = str(ROOT / "traces/lstm.trace.zst")
RAISED: dict[str, Callable[[Path], str]] = {
    "it needs": lambda _: raised(too_little),
    "is above the physical memory": lambda _: raised(lambda: remat.budget("1000000GiB").__enter__()),
    "expected bytes as an int": lambda _: raised(lambda: remat.budget(1.5)),  # type: ignore[arg-type]
    "is not there: expected one of": lambda _: raised(lambda: remat.budget("1MiB", device="cuda:77").__enter__()),
    "budgets do not nest; use run.set_budget": lambda _: within(lambda run: remat.budget("1MiB").__enter__()),
    "the run has ended, so no budget": lambda _: raised(lambda: entered_and_left().set_budget("1MiB")),
    "starts processes of its own": lambda _: told("run", "--budget", "1GiB", "-m", "torch.distributed.run", "a.py"),
    "there is no such file": lambda _: raised(lambda: remat.budget("1MiB", plan="none.json")),
    "is no nn.Sequential": lambda _: raised(lambda: remat.Checkpointable(nn.ReLU(), torch.ones(2), "1MiB")),
    "has hooks": lambda _: raised(hooked),
    "leave out backend=": lambda _: raised(lambda: remat.compile(nn.ReLU(), backend="eager")),
    "is neither a Remat trace": lambda folder: told("trace", "info", text(folder, "hello\n")),
    "the file is cut off": lambda folder: told("trace", "check", text(folder, '{"remat-trace":1,"pools":[]}\n')),
    "is a Remat trace of version": lambda folder: told("trace", "check", text(folder, '{"remat-trace":7}\n')),
    "the smallest budget with one is": lambda _: told("plan", "step", TRACE, "--ratio", "0.1", "--iterations", "1"),
    "goes by addresses": lambda _: told("simulate", TRACE, "--policy", "coop"),
    "the recorded run adopted no plan": lambda _: told("simulate", TRACE, "--policy", "dtr", "--adopted"),
}


def text(folder: Path, said: str) -> str:
    (folder / "file").write_text(said)
    return str(folder / "file")


@pytest.mark.parametrize("part", RAISED)
def test_a_message_is_raised_as_the_page_has_it(tmp_path: Path, part: str) -> None:
    message = next(message for message in MESSAGES if part in message)
    said = RAISED[part](tmp_path)
    assert in_order(said, message), said
