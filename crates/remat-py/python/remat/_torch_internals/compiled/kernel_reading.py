"""The statements of generated code, followed one after the other."""

from __future__ import annotations

import ast
from typing import Any

import torch
import torch.utils._pytree as pytree

from .blocks import Blocks
from .generated_code import Memory, kernel_scope
from .kernel_arguments import kernel_parameters, name_of, names_in
from .kernel_ops import KernelOp, NotTakenApart, Seen, Value

#: Calls of ATen that Inductor writes through ``extern_kernels`` and that make the same bits of the same inputs.
_PURE = {"addmm", "baddbmm", "bias_addmm", "bmm", "convolution", "mm"}
#: Bytes of an input that is written to, up to which it is copied first, so that the op can run again.
_SMALL = 1 << 16
_NAMESPACES = {"aten", "prims", "mkldnn", "mkl"}


class Reading:
    """The statements of one function, one after the other."""

    def __init__(self, code: Blocks, backward: bool, tree: ast.Module, given: dict[str, Any]) -> None:
        self._code, self._backward, self._given = code, backward, given
        self._scope = kernel_scope(tree)
        self._kernels = kernel_parameters(tree)
        self._memory = Memory()
        #: Names that took over the memory of another name and were not used since.
        self._reused: set[str] = set()
        #: By name of a tuple, the op that returned it.
        self._tuples: dict[str, KernelOp] = {}
        self.ops: list[KernelOp] = []
        self.results: list[tuple[ast.expr, Seen | None]] = []

    def run(self, body: list[ast.stmt]) -> list[Any]:
        self._scope.update(self._given)
        following = [*body[1:], None]
        for statement, after in zip(body, following, strict=True):
            if isinstance(statement, ast.Return):
                return self._return(statement)
            self._statement(statement, after)
        raise NotTakenApart("a function without a result")

    def _return(self, statement: ast.Return) -> list[Any]:
        if not isinstance(statement.value, (ast.Tuple, ast.List)):
            raise NotTakenApart("a result that is no tuple")
        values = []
        for element in statement.value.elts:
            value = self._eval(element)
            values.append(value)
            self.results.append((element, self._code.seen(value) if isinstance(value, torch.Tensor) else None))
        return values

    def _statement(self, statement: ast.stmt, after: ast.stmt | None) -> None:
        if isinstance(statement, ast.Delete):
            return
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            function = statement.value.func
            called = ast.unparse(function)
            if called.startswith("assert_") or called == "args.clear":
                return
            self._op(statement, statement.value, None)
        elif isinstance(statement, ast.Assign) and len(statement.targets) == 1:
            self._assign(statement, after)
        else:
            raise NotTakenApart(f"the statement {ast.unparse(statement)[:80]}")

    def _assign(self, statement: ast.Assign, after: ast.stmt | None) -> None:
        (target,) = statement.targets
        value = statement.value
        if isinstance(value, ast.Name) and value.id == "args":
            return
        if not isinstance(target, ast.Name):
            raise NotTakenApart(f"the statement {ast.unparse(statement)[:80]}")
        called = ast.unparse(value.func) if isinstance(value, ast.Call) else ""
        if called.startswith("empty_strided_"):
            tensor = self._eval(value)
            self._scope[target.id] = tensor
            self._code.allocated(tensor)
        elif isinstance(value, ast.Name) or called == "reinterpret_tensor":
            self._scope[target.id] = self._eval(value)
            source = value if isinstance(value, ast.Name) else value.args[0]  # type: ignore[attr-defined]
            if isinstance(source, ast.Name):
                dropped = {ast.unparse(one) for one in after.targets} if isinstance(after, ast.Delete) else set()
                if source.id in dropped:
                    self._reused.add(target.id)
                if source.id in self._reused:
                    self._reused.add(target.id)
        elif isinstance(value, ast.Subscript) and isinstance(value.value, ast.Name):
            self._item(statement, target.id, value.value.id)
        elif isinstance(value, ast.Call):
            self._op(statement, value, target.id)
        else:
            raise NotTakenApart(f"the statement {ast.unparse(statement)[:80]}")

    def _item(self, statement: ast.Assign, target: str, source: str) -> None:
        """An item of a tuple that the latest op returned."""
        op = self._tuples.get(source)
        if op is None:
            raise NotTakenApart(f"the statement {ast.unparse(statement)[:80]}")
        value = self._scope[target] = self._eval(statement.value)
        op.statements.append(statement)
        if isinstance(value, torch.Tensor):
            op.names[target] = self._code.seen(value)
        elif value is not None:
            raise NotTakenApart(f"a result of {op.name} that is no tensor")

    def _eval(self, expression: ast.expr) -> Any:
        return eval(compile(ast.Expression(expression), "<generated>", "eval"), self._scope)

    def _op(self, statement: ast.stmt, call: ast.Call, target: str | None) -> None:
        called = ast.unparse(call.func)
        kernel = self._kernels.get(called)
        op = KernelOp(called, self._backward, [statement])
        written, partly = self._written(op, call, called, kernel)
        blocks = {self._code.block(self._scope[name]) for name in written}
        names = list(names_in(call, self._scope))
        # What is read first: a block that is written in place holds its old value here.
        for name in names:
            block = self._code.block(self._scope[name])
            inside = block in blocks and self._code.current(block) is None  # the call itself writes what it reads
            if inside or (name in written and name not in partly):
                continue
            if name not in written:
                self._reused.discard(name)
            op.names[name] = self._code.seen(self._scope[name])
            if op.names[name].value not in op.reads:
                op.reads.append(op.names[name].value)
        self._memory.calls = []
        if kernel is None:
            with self._memory:
                result = self._eval(call)
        else:
            result = None
        op.calls, op.result = self._memory.calls, result
        done: set[int] = set()
        for name in written:
            if self._code.block(self._scope[name]) not in done:
                self._write(op, name, name in partly)
                done.add(self._code.block(self._scope[name]))
        for name in names:
            if self._code.block(self._scope[name]) in done:
                op.names[name] = self._code.seen(self._scope[name])
        if target is not None:
            self._returned(op, target, result)
        self.ops.append(op)

    def _returned(self, op: KernelOp, target: str, result: Any) -> None:
        self._scope[target] = result
        tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        if not tensors:
            raise NotTakenApart(f"a call of {op.name}")
        for tensor in tensors:
            if self._code.is_known(tensor):
                raise NotTakenApart(f"a view that {op.name} makes")
        for tensor in tensors:
            if self._code.is_known(tensor):
                continue  # two results in one block
            if tensor.storage_offset():
                raise NotTakenApart(f"a part of a block that {op.name} makes")
            self._code.allocated(tensor)
            value = self._code.write(self._code.block(tensor))
            op.makes.append(value)
            op.returned.add(value)
        if isinstance(result, torch.Tensor):
            op.names[target] = self._code.seen(result)
        else:
            op.tuples.add(target)
            self._tuples[target] = op

    def _write(self, op: KernelOp, name: str, partly: bool) -> None:
        """Notes that an op wrote to the tensor of a name; ``partly`` if it needs what was there."""
        tensor = self._scope[name]
        block = self._code.block(tensor)
        reused = name in self._reused
        self._reused.discard(name)
        old = self._code.current(block)
        if reused and not partly and old is not None:
            # The name took over memory that is free: as good as memory of its own.
            tensor = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
            self._scope[name] = tensor
            self._code.allocated(tensor)
            block, old = self._code.block(tensor), None
        new = self._code.write(block)
        if old is not None and old.given is not None and not self._backward and old.bytes <= _SMALL:
            op.restores.append((old, new, self._copied(old)))
        elif old is None:
            op.makes.append(new)
        else:
            op.writes.append((old, new))
            if old not in op.reads:
                op.reads.append(old)
            if old.given is not None:
                op.once = True
            op.fixed |= not reused

    def _copied(self, old: Value) -> Value:
        """A copy of a value, made by an op of its own: written in place, the old value would be lost."""
        copy = self._code.copy_of(old)
        name, target = str(old.given), f"copy_of_{old.given}"
        (statement,) = ast.parse(f"{target} = {name}.clone()").body
        op = KernelOp("clone", False, [statement], [old], [copy], returned={copy}, once=True)
        op.names = {name: Seen(old, old.size, old.stride, 0), target: Seen(copy, copy.size, copy.stride, 0)}
        self.ops.append(op)
        return copy

    def _written(
        self, op: KernelOp, call: ast.Call, called: str, kernel: list[str] | None
    ) -> tuple[list[str], set[str]]:
        """Names that the call writes to, and those among them whose old value it needs."""
        if kernel is not None:
            if len(kernel) != len(call.args):
                raise NotTakenApart(f"a call of {called}")
            written, partly = [], set()
            for kind, argument in zip(kernel, call.args, strict=True):
                if kind != "in":
                    name = name_of(argument)
                    written.append(name)
                    if kind == "in out" or name not in self._reused:
                        partly.add(name)
            return written, partly
        function = self._eval(call.func)
        if isinstance(function, torch._ops.OpOverload):
            op.once = function.namespace not in _NAMESPACES or torch.Tag.nondeterministic_seeded in function.tags
            named = {keyword.arg: keyword.value for keyword in call.keywords}
            written, partly = [], set()
            for place, parameter in enumerate(function._schema.arguments):
                if parameter.alias_info is None or not parameter.alias_info.is_write:
                    continue
                value = call.args[place] if place < len(call.args) else named.get(parameter.name)
                if value is not None:
                    written.append(name_of(value))
                    partly.add(name_of(value))
            return written, partly
        if not called.startswith("extern_kernels."):
            raise NotTakenApart(f"a call of {called}")
        op.once = called.removeprefix("extern_kernels.") not in _PURE
        out = next((keyword.value for keyword in call.keywords if keyword.arg == "out"), None)
        if out is None:
            return [], set()
        name = name_of(out)
        return [name], set() if name in self._reused else {name}
