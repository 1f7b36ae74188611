"""Docstrings as Markdown: roles of Sphinx become code, and doctests become blocks of code."""

from __future__ import annotations

import re
from typing import Any

from griffe import Extension, Object

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data):(?=`)")
DOCTEST = re.compile(r"^( *)>>> (?:.+\n?)+", re.MULTILINE)


class AsMarkdown(Extension):
    """Rewrites each docstring once it is read."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring:
            obj.docstring.value = as_markdown(obj.docstring.value)


def as_markdown(text: str) -> str:
    """The same text without roles, and with each doctest in a fence."""
    return DOCTEST.sub(lambda block: f"{block[1]}```pycon\n{block[0].rstrip()}\n{block[1]}```\n", ROLE.sub("", text))
