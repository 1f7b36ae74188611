"""The parts of the documentation's site that are made when it is built, and the plots."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "scripts"))


def test_plots_are_as_new_as_their_tables(tmp_path: Path) -> None:
    def checked(place: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, place / "scripts/plots", "--check"]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = checked(ROOT)
    assert done.returncode == 0, done.stdout

    # A changed number is found.
    for folder in ("scripts", "docs"):
        (tmp_path / folder).mkdir()
    (tmp_path / "scripts/plots").write_text((ROOT / "scripts/plots").read_text())
    pages = tmp_path / "docs/reference/benchmarks"
    (pages / "plots").mkdir(parents=True)
    for file in (ROOT / "docs/reference/benchmarks").rglob("*.*"):
        text = file.read_text()
        (pages / file.relative_to(ROOT / "docs/reference/benchmarks")).write_text(
            text.replace("| 157.2 |", "| 157.3 |").replace("| 1584208 | 4819 |", "| 1584208 | 4820 |")
        )
    done = checked(tmp_path)
    assert done.returncode == 1 and done.stdout.startswith("plots/search.svg is older"), done.stdout


def test_docstrings_become_markdown() -> None:
    from site_docstrings import as_markdown

    text = "Raises :class:`remat.BudgetError`.\n\n>>> import remat\n>>> remat.x\n1\n\nMore."
    wanted = "Raises `remat.BudgetError`.\n\n```pycon\n>>> import remat\n>>> remat.x\n1\n```\n\nMore."
    assert as_markdown(text) == wanted


def test_the_navigation_takes_in_every_page() -> None:
    from site_hooks import DOCS, expanded, names_of

    nav = expanded([{"Start": ["README.md"]}, {"How to": ["how-to/run.md", "how-to/*"]}])
    named = list(names_of(nav))
    assert named[:2] == ["README.md", "how-to/run.md"] and len(named) == len(set(named))
    assert {page.name for page in (DOCS / "how-to").glob("*.md")} == {name.split("/")[-1] for name in named[1:]}


def test_links_that_leave_the_docs_lead_to_copies() -> None:
    from site_hooks import LINK, relinked

    def linked(text: str, uri: str, home: str) -> str:
        return LINK.sub(lambda link: relinked(link, uri, home), text)

    inside = "[a](run.md#amounts) [b](https://example.org/x.md) [c](#here)"
    assert linked(inside, "how-to/arena.md", "docs/how-to") == inside
    assert linked("[a](../../CONTRIBUTING.md#test)", "how-to/a.md", "docs/how-to") == "[a](../contributing.md#test)"
    header = "crates/remat-alloc/remat_arena.h"
    assert linked(f"[a](../../{header})", "how-to/a.md", "docs/how-to") == f"[a](../source/{header})"
    assert linked("[a](docs/how-to/run.md)", "contributing.md", "") == "[a](how-to/run.md)"


def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path) -> None:
    for name in ("mkdocs.yml", "README.md", "CONTRIBUTING.md", "CHANGELOG.md", "pyproject.toml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for name in ("docs", "scripts"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("crates", "traces"):
        (tmp_path / name).symlink_to(ROOT / name)
    programs = tmp_path / ".venv/bin"
    programs.mkdir(parents=True)
    (programs / "mkdocs").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m mkdocs "$@"\n')
    (programs / "mkdocs").chmod(0o755)

    page = tmp_path / "docs/how-to/arena.md"
    page.write_text(page.read_text() + "\n[a](nowhere.md) [b](run.md#nothing)\n")
    done = subprocess.run([tmp_path / "scripts/docs"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "'nowhere.md'" in done.stderr and "'#nothing'" in done.stderr.replace('"', "'"), done.stderr
    assert done.stderr.count("WARNING") == 2, done.stderr  # and nothing else is wrong
