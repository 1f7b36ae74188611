"""A joint graph and its cut as SVG: forward pass left, from top to bottom; backward pass right, from bottom to top."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from ... import _native

if TYPE_CHECKING:
    from ..capture.cut import Cut

_ROW, _BOX, _TOP = 18, 190, 60
_LEFT, _RIGHT, _WIDTH = 90, 560, 840
_STYLE = (
    "text{font:10px sans-serif;fill:#222}rect{fill:#eef1f5;stroke:#8a94a3}.saved{fill:#ffd9a0;stroke:#b36b00}"
    ".again{fill:#d5ecd8;stroke:#2f7d3b;stroke-dasharray:3 2}path{fill:none;stroke:#c3cad4}"
    ".cut{stroke:#b36b00;stroke-width:1.5}"
)


@dataclass(frozen=True)
class _Box:
    """The place of a node, in pixels."""

    x: int
    y: int


def picture(cut: Cut) -> str:
    """The SVG. Saved values are orange; ops that the backward pass runs in the forward's place are green and dashed."""
    nodes = {node["name"]: node for node in cut.graph["nodes"]}
    backward = _backward(cut.graph)
    late = set(cut.late)
    left = [name for name in nodes if name not in backward]
    right = [name for name in nodes if name in backward or name in late]
    rows = max(len(left), len(right))
    forward_boxes = {name: _Box(_LEFT, _TOP + _ROW * row) for row, name in enumerate(left)}
    backward_boxes = {name: _Box(_RIGHT, _TOP + _ROW * (rows - 1 - row)) for row, name in enumerate(right)}
    saved = set(cut.saved)
    lines = _edges(nodes, left, forward_boxes, -1) + _edges(nodes, right, backward_boxes, 1)
    lines += [_crossing(forward_boxes[n], backward_boxes[u]) for u in right for n in nodes[u]["inputs"] if n in saved]
    boxes = [_box(cut, nodes[n], forward_boxes[n], "saved" if n in saved else "") for n in left]
    boxes += [_box(cut, nodes[n], backward_boxes[n], "again" if n in late else "") for n in right]
    return _sheet(cut, rows, lines + boxes)


def _backward(graph: dict[str, Any]) -> set[str]:
    """Names of the values that only the backward pass can compute."""
    backward = set(graph["tangents"])
    for node in graph["nodes"]:
        if not backward.isdisjoint(node["inputs"]):
            backward.add(node["name"])
    return backward


def _sheet(cut: Cut, rows: int, shapes: list[str]) -> str:
    fmt = _native.format_bytes
    title = (
        f"{len(cut.saved)} values saved, {fmt(cut.bytes_after)} (without recomputing {fmt(cut.bytes_before)}); "
        f"{len(cut.recomputed)} ops recomputed"
    )
    height = _TOP + _ROW * (rows + 1)
    size = f'width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size}>',
            f"<style>{_STYLE}</style>",
            f'<text x="{_LEFT}" y="20">{escape(title)}</text>',
            f'<text x="{_LEFT}" y="44">forward, downwards</text><text x="{_RIGHT}" y="44">backward, upwards</text>',
            *shapes,
            "</svg>",
            "",
        ]
    )


def _edges(nodes: dict[str, Any], names: list[str], boxes: dict[str, _Box], side: int) -> list[str]:
    """Arcs beside a column, each from a node to one that reads it."""
    paths = []
    for name in names:
        for read in nodes[name]["inputs"]:
            if read in boxes:
                paths.append(_arc(boxes[read], boxes[name], side))
    return paths


def _arc(start: _Box, end: _Box, side: int) -> str:
    x = start.x + (_BOX if side > 0 else 0)
    bend = x + side * min(80, 8 + abs(end.y - start.y) // 4)
    y, to = start.y + _ROW // 2 - 2, end.y + _ROW // 2 - 2
    return f'<path d="M{x} {y}C{bend} {y} {bend} {to} {x} {to}"/>'


def _crossing(start: _Box, end: _Box) -> str:
    x, y, to = start.x + _BOX, start.y + _ROW // 2 - 2, end.y + _ROW // 2 - 2
    middle = (x + end.x) // 2
    return f'<path class="cut" d="M{x} {y}C{middle} {y} {middle} {to} {end.x} {to}"/>'


def _box(cut: Cut, node: dict[str, Any], box: _Box, kind: str) -> str:
    reason = cut.banned.get(node["name"])
    hint = f"{node['op']}, {_native.format_bytes(node['bytes'])}" + (f"; not recomputed: {reason}" if reason else "")
    label = escape(node["name"][:32])
    place = f'x="{box.x}" y="{box.y}" width="{_BOX}" height="{_ROW - 4}"'
    return (
        f'<g><title>{escape(hint)}</title><rect class="{kind}" {place} rx="3"/>'
        f'<text x="{box.x + 5}" y="{box.y + _ROW - 7}">{label}</text></g>'
    )
