"""The policy that CONTRIBUTING.md adds: its steps are done on a copy of the engine, which then knows the policy."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
POLICIES = "crates/remat-core/src/eviction/policy/"

PROGRAM = """
fn main() {
    let policy: remat_core::Policy = std::env::args().nth(1).unwrap().parse().unwrap();
    println!("{policy}: {}", policy.formula());
}
"""


def walkthrough() -> str:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    found = re.search(r"^## Add a policy\n(.*?)^## ", page, re.DOTALL | re.MULTILINE)
    assert found, "CONTRIBUTING.md has no section on adding a policy"
    return found[1]


def steps(section: str) -> list[tuple[str, str]]:
    """Files named in backticks, each with the code block that follows."""
    pattern = rf"`({POLICIES}\w+\.rs)`.*?```rust\n(.*?)```"
    blocks = re.findall(pattern, section, re.DOTALL)
    return [(path, re.sub(r"^   ", "", code, flags=re.MULTILINE)) for path, code in blocks]


@pytest.fixture(name="engine")
def _engine(tmp_path: Path) -> Path:
    """A copy of the engine as a workspace of its own, with a program that asks for a policy."""
    for name in ("Cargo.toml", "Cargo.lock"):
        shutil.copy(ROOT / name, tmp_path)
    workspace = tmp_path / "Cargo.toml"
    members = re.compile(r"^(default-)?members = \[.*?\]", re.MULTILINE)
    text = members.sub(r'\1members = ["crates/remat-core"]', workspace.read_text())
    workspace.write_text(text)
    shutil.copytree(ROOT / "crates/remat-core", tmp_path / "crates/remat-core")
    program = tmp_path / "crates/remat-core/src/bin/policy.rs"
    program.parent.mkdir()
    program.write_text(f"//! Prints a policy.\n{PROGRAM}")
    return tmp_path


def run(engine: Path, policy: str) -> subprocess.CompletedProcess[str]:
    # It computes nothing that would be worth the compiler's time.
    plain = "profile.dev.package.remat-core.opt-level=0"
    command = ["cargo", "run", "--quiet", "--offline", "--config", plain, "--bin", "policy", "--", policy]
    return subprocess.run(command, cwd=engine, capture_output=True, text=True, check=False)


def test_a_policy_is_one_file_and_one_line(engine: Path) -> None:
    (file, rule), (modules, module), (table, row) = steps(walkthrough())
    name = re.search(r'row\("([\w-]+)"', row)
    assert name
    assert "UnknownPolicy" in run(engine, name[1]).stderr

    (engine / file).write_text(rule)
    in_modules = (engine / modules).read_text()
    (engine / modules).write_text(in_modules.replace("\nmod ", f"\n{module}mod ", 1))
    in_table = (engine / table).read_text()
    head, rows, rest = re.split(r"(^const TABLE: .*?)^\];", in_table, maxsplit=1, flags=re.DOTALL | re.MULTILINE)
    (engine / table).write_text(f"{head}{rows}    {row}];{rest}")

    answer = run(engine, name[1])
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith(f"{name[1]}: ")
    assert "warning" not in answer.stderr
