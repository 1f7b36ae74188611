"""The commands that the documentation and every `--help` show, and how each is run at its smallest."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from format_examples import write_examples
from process import REMAT, environment

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "crates/*/README.md")

SUITES = {
    r"scripts/test-release\b": "installs a release of torch, and what it runs is tested here",
    r"scripts/test\b": "this very suite",
    r"scripts/(demo|checker|fuzz|programs)\b": "minutes to hours, and what it runs is tested here",
    r"(ONEDNN_MAX_CPU_ISA=AVX2 python|\.venv-programs/bin/python) benchmarks/estimates\.py": "the same on another "
    "processor, or with the packages of scripts/programs",
    r"scripts/wheel\b": "minutes, and fetches a linker's parts and torch",
    r"(REMAT_DISPATCH=python )?scripts/conformance\b": "minutes; a part of it is tested here",
    r"scripts/setup\b": "installs what these tests run with",
    r"scripts/(docs|plots|pictures)\b": "a part of scripts/test, or draws committed files",
    r"cargo (test|clippy|fmt|doc|build|package)\b": "a part of scripts/test, or of a release",
    r"(REMAT_DISPATCH=python )?(python -m )?pytest\b": "a part of scripts/test, or the same through a dispatch mode",
    r"cargo (\+nightly )?(fuzz|install)\b": "needs a nightly compiler, or installs one's own",
    r"(python -m )?pip install\b": "installs; scripts/setup does the same",
    r"git (clone|clean)\b": "fetches or clears a clone",
    r"cd\b": "for the reader's shell",
}
"""Commands that are not run here, by how they start, each with the reason."""

EXAMPLE = r"^cargo run --release -p \S+ --example "
SMALLEST = [
    (r"/tmp/", "./"),
    # The same code as `cargo test` has built, and no second build with optimizations.
    (rf"{EXAMPLE}search$", r"\g<0> -- 1000 dtr-eq"),
    (rf"{EXAMPLE}pool$", r"\g<0> -- 1000"),
    (r"(--example linear --) \d+", r"\1 1000"),
    (r"(--example coop --) .*", r"\1 traces/lstm.trace.zst"),
    (r"(--example deciding --) .*", r"\1 dtr-anc 0.9 traces/lstm.trace.zst"),
    (rf"{EXAMPLE}begin_finish$", r"\g<0> -- 1000 1000"),
    (r"(?<=\s)benchmarks/(deciding|planning)/", rf"{ROOT}/benchmarks/\1/"),
    (r"(many_layers\.py) \d+", r"\1 2"),
    (r"densenet\.py", r"\g<0> 1"),
    (r"\bdensenet\.trace\.zst", "gpt.trace.zst"),
    (r"(-p remat-plan --example speed)$", r"\1 -- residual persistent 20"),
    (r"(--example cut_speed)$", r"\1 -- ladder 1000"),
    (r"(--example step_speed --) .*", r"\1 0 0.7 traces/lstm.trace.zst"),
    (r"(--example pair_cost) .*", r"\1"),
    (r"^cargo run --release", f"cargo run --quiet --manifest-path '{ROOT}/Cargo.toml'"),
    (r"(remat plan step .*)--seconds \S+", r"\1--iterations 1"),
    (r"(remat plan step \S+)(?!.*--iterations)", r"\1 --iterations 1"),
    (r"(remat measure)(?!.*--seconds)", r"\1 --seconds 0.1"),
    (r"--growth$", "--growth=1"),
    (r"seq \d+", "seq 2"),
    (r"(\bexamples/\w+\.py)(?!.*--steps)", r"\1 --steps 1"),
    (r"\bcuda:0=\S+ --budget ", ""),
    # A share of the peak is of one that was measured.
    (
        r"remat run --budget 50%peak train\.py.*",
        r"export REMAT_CACHE=../cache && remat measure --ratio 0.9 --seconds 0.1 train.py && \g<0>",
    ),
    # Benchmarks: the smallest models, one turn.
    (r"--rounds \d+", "--rounds 1"),
    (r"--steps \d+", "--steps 1"),
    (r"--batch 224", "--batch 2"),
    (r"--models \S+", ""),
    (r"benchmarks/\w+\.py(?!.*--quick)", r"\g<0> --quick"),
    (r"benchmarks/speed\.py", r"\g<0> --models resnet --no-overhead"),
    (r"benchmarks/chains\.py", r"\g<0> --models transformer"),
    (r"benchmarks/cuts\.py(?=.*(--latency|--batch))", r"\g<0> --models pointwise"),
    (r"benchmarks/cuts\.py(?!.*(--models|--forecast))", r"\g<0> --models gpt2"),
]
"""Substitutions that make a command small, one after the other."""

KNOWN = (
    r"(REMAT_LOG=off )?(python -m )?remat |python (benchmarks/)?\w+\.py|cargo run |for i in |/usr/bin/time |LD_PRELOAD="
)
"""How commands start that are run."""
HEAVY = r"python benchmarks/|cargo run |remat plan step .* --addresses |.*densenet\.py"
"""Those that run with `--all` only, in any case."""


@dataclass(frozen=True)
class Shown:
    """A command, and where it is shown."""

    command: str
    where: str
    error: str | None = None
    """The name of the error that the page shows below it."""

    @property
    def suite(self) -> str | None:
        """The reason why it is not run here."""
        return next((reason for start, reason in SUITES.items() if re.match(start, self.command)), None)

    @property
    def parts(self) -> set[tuple[str | None, ...]]:
        """The options that it shows, each with the command that it belongs to, and the error."""
        words = self.command.split()
        named = tuple(itertools.takewhile(re.compile("[a-z]+").fullmatch, words[:3])) or (words[0],)
        options = {word.partition("=")[0] for word in words if word.startswith("-")}
        return {(*named, option) for option in options or {""}} | ({(self.error,)} if self.error else set())

    @property
    def smallest(self) -> str:
        """The command that is run for it."""
        command = re.sub(r"\s+", " ", self.command)
        for pattern, replacement in SMALLEST:
            command = re.sub(pattern, replacement, command)
        return command.strip()

    @property
    def needs(self) -> str | None:
        """Something it needs that is not here."""
        words = self.smallest.split()
        if "../shared" in self.smallest and not (ROOT / "../shared/data/dtr-logs").is_dir():
            return "the DTR authors' logs at ../shared/data"
        if "benchmarks/instructions.py" in words and not shutil.which("valgrind"):
            return "valgrind"
        return next((tool for tool in ("jq", "/usr/bin/time") if tool in words and not shutil.which(tool)), None)


def shown() -> list[Shown]:
    """Every command; of those that come down to the same, one."""
    found: dict[str, Shown] = {}
    for one in [*_in_pages(), *_in_help()]:
        found.setdefault(one.smallest, one)
    return list(found.values())


def always(commands: list[Shown]) -> list[Shown]:
    """Those that run without `--all`: each option of each command is in one of them, as few as come by the way."""
    seen: set[tuple[str | None, ...]] = set()
    chosen = []
    for one in sorted(commands, key=lambda one: -len(one.parts)):
        if not re.match(HEAVY, one.command) and not one.parts <= seen:
            seen |= one.parts
            chosen.append(one)
    return chosen


def _in_pages() -> Iterator[Shown]:
    for pattern in PAGES:
        for page in sorted(ROOT.glob(pattern)):
            yield from commands_of(page.read_text(), str(page.relative_to(ROOT)))


def commands_of(text: str, where: str) -> Iterator[Shown]:
    """The lines of a page's console blocks that start with `$`, with the lines that a backslash joins to them.

    The other lines are output.
    """
    for block in re.findall(r"^ *```console\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE):
        joined = re.sub(r"\s*\\\n\s*(> *)?", " ", block)
        for line, output in re.findall(r"^ *\$ (.*)((?:\n(?! *\$ ).*)*)", joined, re.MULTILINE):
            error = re.search(r"\b(\w+Error):", output)
            yield Shown(re.sub(r"\s+#\s.*", "", line).strip(), where, error and error[1])


def _in_help() -> Iterator[Shown]:
    waiting: list[tuple[str, ...]] = [()]
    while waiting:
        words = waiting.pop()
        text = _help(words)
        yield from examples_of(text, " ".join(["remat", *words, "--help"]))
        commands = re.search(r"^(?:Commands|commands):\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
        named = re.findall(r"^  (\w[\w-]*)", commands[1], re.MULTILINE) if commands else []
        waiting += [(*words, name) for name in named if name != "help"]


@cache
def _help(words: tuple[str, ...]) -> str:
    asked = subprocess.run([*REMAT, *words, "--help"], capture_output=True, text=True, env=environment(), check=True)
    return asked.stdout


def examples_of(text: str, where: str) -> Iterator[Shown]:
    """The commands under `Examples:`; a comment stands behind two spaces, and may go on in a line of its own."""
    under = re.search(r"^[Ee]xamples:\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    lines = [line for line in (under[1].splitlines() if under else []) if re.match(r"\s+remat ", line)]
    parted = [re.match(r"(\s+\S.*?)(\s{2,})\S", line) for line in lines]
    columns = {part.end() - 1 for part in parted if part}
    for line, part in zip(lines, parted, strict=True):
        command = part[1] if part else line
        if not part and len(columns) == 1 and line[(column := min(columns)) - 1 : column] == " ":
            command = line[:column]  # as long as all others with their spaces
        yield Shown(command.strip(), where)


TRAIN = """
import torch
model = torch.nn.Sequential(*(torch.nn.Linear(32, 32) for _ in range(8)))
for step in range(6):
    loss = model(torch.randn(256, 32)).square().mean()
    loss.backward()
"""

GIB = 1 << 30
STAGE = {"forward_time": 1000, "backward_time": 2000, "activation_bytes": GIB // 4, "saved_bytes": GIB}
CHAIN = {"input_bytes": GIB // 4, "stages": [STAGE] * 12}


def _node(name: str, size: int, inputs: list[str], **more: object) -> dict[str, object]:
    return {"name": name, "bytes": size * GIB // 1000, "inputs": inputs, "fusible": True, "cost": 1000, **more}


def _product(name: str, size: int, inputs: list[str]) -> dict[str, object]:
    return _node(name, size, inputs, fusible=False, compute_bound=True, cost=50_000, op="mm")


# Two layers, each a product and what is made of it, and their backward pass.
JOINT_GRAPH = {
    "nodes": [
        *(_node("x", 400, []), _node("w", 100, []), _node("v", 100, []), _product("m", 1000, ["x", "w"])),
        *(_node("a", 1000, ["m"]), _node("b", 1000, ["a"]), _product("n", 400, ["b", "v"]), _node("y", 400, ["n"])),
        *(_node("g", 400, []), _node("dn", 400, ["g", "n"]), _product("dv", 100, ["b", "dn"])),
        *(_product("db", 1000, ["dn", "v"]), _node("da", 1000, ["db", "b"]), _node("dm", 1000, ["da", "a"])),
        *(_product("dw", 100, ["x", "dm"]), _product("dx", 400, ["dm", "w"])),
    ],
    "inputs": ["x", "w", "v"],
    "tangents": ["g"],
    "forward_outputs": ["y"],
    "backward_outputs": ["dv", "dw", "dx"],
}


def desk(folder: Path, command: str, run: Callable[[list[str], Path], str]) -> Path:
    """A folder with the repository's own and every file that a command names."""
    place = folder / "desk"
    place.mkdir()
    for entry in ROOT.iterdir():
        if not entry.name.startswith("."):
            (place / entry.name).symlink_to(entry)
    if (ROOT / "../shared").is_dir():
        (folder / "shared").symlink_to(ROOT / "../shared")
    (folder / "bin").mkdir()
    (place / "train.py").write_text(TRAIN)
    (place / "net.json").write_text(json.dumps(CHAIN))
    shutil.copy(ROOT / "traces/lstm.trace.zst", place / "step.trace.zst")
    shutil.copy(ROOT / "traces/gpt.trace.zst", place / "gpt.trace.zst")
    if " example." in command:  # all that the command reads
        write_examples(place)
        return place
    for name in ("unet.log", "resnet.log", "step.trace"):
        if name in command or "*.log" in command:
            run([*REMAT, "trace", "convert", "step.trace.zst", name], place)
    if "run.trace.zst" in command:  # a run that adopted a plan
        plan = {"v": 1, "s": f"{1:016x}{2:016x}", "a": [[1, "drop", 0, 0]], "c": [9, 3, 9, 2]}
        events = [{"plan": {"follow": plan}}, {"const": {"t": 1, "b": 64}}]
        lines = [{"remat-trace": 1}, *events, {"end": {"events": len(events)}}]
        (place / "run.trace.zst").write_text("".join(json.dumps(line) + "\n" for line in lines))
    if "step.json" in command:  # not a chain: only where it is named, as commands ask for `*.json`
        (place / "step.json").write_text(json.dumps(JOINT_GRAPH))
    for kind, made_of in (("chain", "net.json"), ("cut", "step.json")):
        if f"verify {kind}" in command:
            (place / "plan.json").write_text(run([*REMAT, "plan", kind, made_of, "--budget", "6GiB", "--json"], place))
    if "verify step" in command or re.search(r"remat simulate .*--plan ", command):
        search = ("--budget", "6GiB", "--iterations", "1", "--addresses", "--out", "plan.json")
        run([*REMAT, "plan", "step", "step.trace.zst", *search], place)
    return place
