"""The arguments of calls in generated code: what a C++ kernel reads and writes, and which tensors are meant."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Any

import torch

from .kernel_ops import NotTakenApart


def name_of(expression: ast.expr) -> str:
    """The name of the tensor that an argument is, or is a view of."""
    if isinstance(expression, ast.Call) and ast.unparse(expression.func) == "reinterpret_tensor":
        return name_of(expression.args[0])
    if not isinstance(expression, ast.Name):
        raise NotTakenApart(f"the argument {ast.unparse(expression)[:80]}")
    return expression.id


def names_in(call: ast.Call, scope: dict[str, Any]) -> Iterator[str]:
    """The names of tensors in a call."""
    for node in ast.walk(call):
        if not isinstance(node, ast.Name):
            continue
        if isinstance(scope.get(node.id), torch.Tensor):
            yield node.id
        elif node.id in scope and scope[node.id] is None:
            raise NotTakenApart(f"the constant {node.id}")


_SIGNATURE = re.compile(r"\bkernel\(([^)]*)\)")


def kernel_parameters(tree: ast.Module) -> dict[str, list[str]]:
    """By name of a C++ kernel, for each parameter ``in``, ``out`` or ``in out``."""
    found: dict[str, list[str]] = {}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if ast.unparse(node.value.func) != "async_compile.cpp_pybinding":
            continue
        (target,) = node.targets
        source = node.value.args[1]
        if not isinstance(target, ast.Name) or not isinstance(source, ast.Constant):
            continue
        signature = _SIGNATURE.search(str(source.value))
        parameters = signature.group(1).split(",") if signature else []
        found[target.id] = [_kind(parameter.split()[-1]) for parameter in parameters if parameter.strip()]
    return found


def _kind(parameter: str) -> str:
    name = parameter.lstrip("*&")
    for prefix, kind in (("in_out_ptr", "in out"), ("in_ptr", "in"), ("out_ptr", "out")):
        if name.startswith(prefix):
            return kind
    raise NotTakenApart(f"a kernel with the parameter {name}")
