"""The examples in the pages of file formats, and the commands that read them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

PAGES = sorted((Path(__file__).parent.parent / "docs/reference/formats").glob("*.md"))
FILE = re.compile(r"`(example\.[\w.-]+)`[^`]*:\n\n```json\n(.*?)^```", re.DOTALL | re.MULTILINE)
CONSOLE = re.compile(r"^```console\n(.*?)^```", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True)
class Read:
    """A command that reads an example, and what the page says it prints."""

    page: str
    command: str
    output: str


def examples() -> dict[str, str]:
    """The text of each example by its name."""
    return {name: text for page in PAGES for name, text in FILE.findall(page.read_text())}


def reads() -> list[Read]:
    """All commands of the pages."""
    blocks = [(page.name, block) for page in PAGES for block in CONSOLE.findall(page.read_text())]
    shown = [
        (page, *one)
        for page, block in blocks
        for one in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, re.MULTILINE)
    ]
    return [Read(*one) for one in shown]


def write_examples(folder: Path) -> None:
    """Writes each example as a file."""
    for name, text in examples().items():
        (folder / name).write_text(text)
