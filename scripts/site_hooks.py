"""Hooks of mkdocs: the parts of the site that are made when it is built.

- `folder/*` in the navigation stands for the pages of a folder that are not named before it.
- Links that leave `docs/` lead to copies: CONTRIBUTING.md and CHANGELOG.md are pages, other files lie in `source/`.
- No page asks the network for anything: the one script that the theme loads from there lies in `docs/assets`.
- The page of the command line has every `--help`, as the installed command prints it; that of Python has every public
  name, from the docstrings.
"""

from __future__ import annotations

import ast
import os
import posixpath
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PACKAGE = ROOT / "crates/remat-py/python/remat"
#: Pages of the site that are files at the root of the repository.
AT_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
#: The script that lets the search of pages opened from a disk use a worker, and the copy of it.
SHIM, SHIM_HERE = "https://unpkg.com/iframe-worker/shim", "assets/iframe-worker/shim.js"
FROM_NETWORK = re.compile(
    r"<(?:script|img|link rel=\"(?:stylesheet|preconnect|icon)\")[^>]*?(?:src|href)=\"(https?:[^\"]+)"
)
FENCE_IN_LIST = re.compile(r"^ {3}```.*?^ {3}```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?(?=\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    config.nav = expanded(config.nav or [])
    return config


def expanded(nav: list[Any]) -> list[Any]:
    """The navigation with `folder/*` replaced by the folder's other pages."""
    named = set(names_of(nav))

    def expand(entry: Any) -> Iterator[Any]:
        if isinstance(entry, dict):
            yield {title: [one for inner in below for one in expand(inner)] for title, below in entry.items()}
        elif entry.endswith("/*"):
            pages = (page.relative_to(DOCS).as_posix() for page in sorted((DOCS / entry[:-2]).glob("*.md")))
            yield from (page for page in pages if page not in named)
        else:
            yield entry

    return [one for entry in nav for one in expand(entry)]


def names_of(nav: list[Any]) -> Iterator[str]:
    for entry in nav:
        if isinstance(entry, dict):
            for below in entry.values():
                yield from names_of(below)
        else:
            yield entry


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for source, page in AT_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text()))
    for written in DOCS.rglob("*.md"):
        for target in outside(written):
            uri = f"source/{target}"
            if (ROOT / target).is_file() and target not in AT_ROOT and files.get_file_from_path(uri) is None:
                files.append(File.generated(config, uri, abs_src_path=str(ROOT / target)))
    return files


def outside(page: Path) -> Iterator[str]:
    """The files outside `docs/` that a page links to, relative to the root."""
    for link in LINK.finditer(page.read_text()):
        target = posixpath.normpath(posixpath.join(page.parent.relative_to(ROOT).as_posix(), link[1]))
        if not target.startswith("docs/"):
            yield target


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    uri = page.file.src_uri
    at_root = {there: here for here, there in AT_ROOT.items()}
    # As the repository has it: the place that relative links start from.
    home = "" if uri in at_root else posixpath.dirname(f"docs/{uri}")
    markdown = LINK.sub(lambda link: relinked(link, uri, home), markdown)
    # Of text in a list Python-Markdown asks for four columns, where a code host takes three.
    markdown = FENCE_IN_LIST.sub(lambda block: re.sub("^(?=.)", " ", block[0], flags=re.MULTILINE), markdown)
    if uri == "reference/command-line.md":
        markdown += "\n" + "\n".join(helps())
    if uri == "reference/python.md":
        markdown += "\n" + "\n".join(names())
    return markdown


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    return offline(output, page.url)


def on_post_template(output: str, template_name: str, config: MkDocsConfig) -> str:
    return offline(output, template_name)


def offline(output: str, url: str) -> str:
    """A page that asks the network for nothing."""
    output = output.replace(SHIM, posixpath.relpath(SHIM_HERE, posixpath.dirname(url) or "."))
    if asked := FROM_NETWORK.search(output):
        raise PluginError(f"{url}: the page asks the network for {asked[1]}; the site works offline")
    return output


def relinked(link: re.Match[str], uri: str, home: str) -> str:
    target = posixpath.normpath(posixpath.join(home, link[1]))
    if home.startswith("docs") and target.startswith("docs/"):
        return link[0]
    if not (ROOT / target).exists():
        raise PluginError(f"{uri}: the link to {link[1]} leads nowhere; there is no {target}")
    if target.startswith("docs/"):
        there = target.removeprefix("docs/")
    elif target in AT_ROOT:
        there = AT_ROOT[target]
    elif (ROOT / target).is_file():
        there = f"source/{target}"
    else:
        raise PluginError(f"{uri}: {link[1]} is a folder outside docs/, which the site has no page of; name it as code")
    return posixpath.relpath(there, posixpath.dirname(uri) or ".") + (link[2] or "")


def helps() -> list[str]:
    """A section for each command, those of `remat` first."""
    found: dict[tuple[str, ...], str] = {}
    waiting: list[tuple[str, ...]] = [()]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        while waiting:
            texts = dict(zip(waiting, pool.map(help_of, waiting), strict=True))
            found |= texts
            waiting = [(*words, name) for words, text in texts.items() for name in commands_in(text)]
    return [
        f"{'##' if len(words) < 2 else '###'} {' '.join(['remat', *words])}\n\n```text\n{text.rstrip()}\n```\n"
        for words, text in sorted(found.items())
    ]


def help_of(words: tuple[str, ...]) -> str:
    command = [sys.executable, "-m", "remat", *words, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "COLUMNS": "100"}, check=False)
    if done.returncode:
        raise PluginError(
            f"`remat {' '.join(words)} --help` failed, so its section cannot be made: {done.stderr[-500:]}"
        )
    return done.stdout


def commands_in(text: str) -> list[str]:
    listed = re.search(r"^(?:Commands|commands):\n(.*?)(?:\n\n|\Z)", text, re.DOTALL | re.MULTILINE)
    return [name for name in re.findall(r"^  (\w[\w-]*)", listed[1] if listed else "", re.MULTILINE) if name != "help"]


def names() -> Iterator[str]:
    """A directive for each public name."""
    yield "## remat\n"
    for name in public_names(PACKAGE / "__init__.py"):
        if not name.startswith("_"):
            yield f"::: remat.{name}\n"
    for module in sorted((PACKAGE / "integrations").glob("[!_]*.py")):
        yield f"## remat.integrations.{module.stem}\n\n::: remat.integrations.{module.stem}\n"
        yield "    options: {show_root_heading: false}\n"


def public_names(module: Path) -> list[str]:
    """The names in a module's `__all__`."""
    for statement in ast.parse(module.read_text()).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
    raise PluginError(f"{module} has no __all__, from which the reference takes the public names")
