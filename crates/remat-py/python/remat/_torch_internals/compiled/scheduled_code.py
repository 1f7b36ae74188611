"""Generated code written anew: the same calls of kernels, in the order and as often as a plan has them."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..._errors import RematError
from .generated_code import main_function
from .kernel_ops import KernelOp, NotTakenApart, Pass, Seen, Value


@dataclass(frozen=True)
class Run:
    """A run of an op; ``consumed`` are the old values whose blocks it takes."""

    op: KernelOp
    consumed: frozenset[Value]
    again: bool


@dataclass(frozen=True)
class Free:
    """The end of a value in memory."""

    value: Value


Action = Run | Free


@dataclass
class Scheduled:
    """The code of both passes by a plan."""

    forward: str
    backward: str
    #: The inputs of the backward pass that the forward pass returns after its own results: names, and values if any.
    slots: list[tuple[str, Value | None]]
    #: How many of them the graph did not have.
    extra: int


#: Names of values that the backward pass is handed in places that the graph did not have.
SLOT = "remat_slot_"


def scheduled(
    forward: Pass, backward: Pass, slots: Sequence[str], first: Sequence[Action], second: Sequence[Action]
) -> Scheduled:
    """Writes both passes anew, with ``first`` as the forward pass and ``second`` as the backward pass.

    ``slots`` are the names of the inputs of the backward pass that the forward pass returns after its own results.
    """
    again = [action.op for action in [*first, *second] if isinstance(action, Run) and action.again]
    wanted = {copy for op in again for _, _, copy in op.restores}
    copies = {copy for op in forward.ops for _, _, copy in op.restores}
    first = [action for action in first if not (isinstance(action, Run) and copies & {*action.op.makes} - wanted)]
    writer = _Function(forward)
    for action in first:
        writer.take(action)
    handed = _handed(second, backward, writer)
    places, extra = _places(handed, slots, backward)
    own = forward.results[: len(forward.results) - len(slots)]
    results = [writer.result(expression, seen) for expression, seen in own]
    results += [writer.variable(places[slot]) if slot in places else "nothing" for slot in [*slots, *extra]]
    if any(slot not in places for slot in slots):
        writer.lines.append("nothing = empty_strided_cpu((0,), (1,), torch.uint8)")
    writer.lines.append(f"return ({''.join(f'{result}, ' for result in results)})")

    after = _Function(backward, {value: f"v{value.number}" for value in places.values()})
    for action in second:
        after.take(action)
    results = [after.result(expression, seen) for expression, seen in backward.results]
    after.lines.append(f"return ({''.join(f'{result}, ' for result in results)})")
    names = {slot: f"v{places[slot].number}" if slot in places else f"unused_{slot}" for slot in [*slots, *extra]}
    unpacked = [names.get(name, name) for name in _with_slots(backward.inputs, slots, extra)]
    borrowed = _borrowed(forward, second)
    return Scheduled(
        _replaced(forward, forward.inputs, writer.lines, ""),
        _replaced(backward, unpacked, after.lines, borrowed),
        [(names[slot], places.get(slot)) for slot in [*slots, *extra]],
        len(extra),
    )


def _with_slots(names: Sequence[str], slots: Sequence[str], extra: Sequence[str]) -> list[str]:
    """The inputs of the backward pass, with more slots after those that were there."""
    if not slots:
        return [*extra, *names]
    at = names.index(slots[-1]) + 1
    return [*names[:at], *extra, *names[at:]]


def _handed(actions: Sequence[Action], backward: Pass, writer: _Function) -> list[Value]:
    """Values that the backward pass reads and that the forward pass has."""
    made: set[Value] = set()
    handed: dict[Value, None] = {}

    def read(value: Value) -> None:
        if value not in made and writer.has(value):
            handed[value] = None

    for action in actions:
        if isinstance(action, Run):
            copies = {copy for _, _, copy in action.op.restores}
            for value in action.op.reads:
                if action.again or value not in copies:
                    read(value)
            made.update(action.op.makes, (new for _, new in action.op.writes))
    for _, seen in backward.results:
        if seen is not None:
            read(seen.value)
    return list(handed)


def _places(handed: list[Value], slots: Sequence[str], backward: Pass) -> tuple[dict[str, Value], list[str]]:
    """The slot of each value: the one that it had, or a free one, or one more."""
    places: dict[str, Value] = {}
    left = list(handed)
    for slot in slots:
        value = backward.given[slot].value
        if value in left:
            places[slot] = value
            left.remove(value)
    # Inputs of the step keep to their own slots: torch treats those apart.
    free = [slot for slot in slots if slot not in places and backward.given[slot].value.given is None]
    extra = [f"{SLOT}{number}" for number in range(max(0, len(left) - len(free)))]
    places.update(zip([*free, *extra], left, strict=False))
    return places, extra


class _Function:
    """The body of a function, written line by line."""

    def __init__(self, code: Pass, names: dict[Value, str] | None = None) -> None:
        self._code = code
        self.lines: list[str] = []
        if names is None:
            names = {seen.value: name for name, seen in code.given.items()}
            checked = set(code.inputs)
        else:
            tangents = {n: s.value for n, s in code.given.items() if s.value not in names and n.startswith("tangents")}
            names = {**{value: name for name, value in tangents.items()}, **names}
            checked = set(tangents)
        #: The variable that holds each value; the value itself, not a view of it.
        self._names = names
        self.lines += _checks(code.function, checked)

    def has(self, value: Value) -> bool:
        return value in self._names

    def variable(self, value: Value) -> str:
        return self._names[value]

    def take(self, action: Action) -> None:
        """Writes one action."""
        if isinstance(action, Free):
            name = self._names.pop(action.value, None)
            if name is not None:
                self.lines.append(f"del {name}")
        else:
            self._run(action)

    def result(self, expression: ast.expr, seen: Seen | None) -> str:
        return ast.unparse(expression) if seen is None else self._view(seen)

    def _view(self, seen: Seen) -> str:
        name = self._names[seen.value]
        return name if seen.whole else f"reinterpret_tensor({name}, {seen.size}, {seen.stride}, {seen.offset})"

    def _run(self, run: Run) -> None:
        op = run.op
        for value in op.makes:
            if value not in op.returned:
                self._allocate(value)
        for old, new in op.writes:
            if old in run.consumed:
                before = self._names.pop(old)
                self.lines += [f"v{new.number} = {before}", f"del {before}"]
                self._names[new] = f"v{new.number}"
            else:
                self._allocate(new)
                self.lines.append(f"v{new.number}.copy_({self._names[old]})")
        scratch = [self._restore(old, new, copy, run.again) for old, new, copy in op.restores]
        taken = {old: new for old, new in op.writes if old in run.consumed}
        for statement in op.statements:
            self._write(op, statement, taken)
        self.lines += [f"del {name}" for name in scratch if name is not None]
        if op.tuples:
            self.lines += [f"del {_tuple(name)}" for name in sorted(op.tuples)]

    def _restore(self, old: Value, new: Value, copy: Value, again: bool) -> str | None:
        """Has an op write to an input of the step, or if it runs again to memory that holds the same; returns that."""
        if not again:
            self._names[new] = self._names[old]
            return None
        name = self._names[new] = f"scratch{new.number}"
        self.lines.append(f"{name} = {self._names[copy]}.clone()")
        return name

    def _allocate(self, value: Value) -> None:
        self.lines.append(f"v{value.number} = empty_strided_cpu({value.size}, {value.stride}, {value.dtype})")
        self._names[value] = f"v{value.number}"

    def _write(self, op: KernelOp, statement: ast.stmt, taken: dict[Value, Value]) -> None:
        statement = copy.deepcopy(statement)
        if isinstance(statement, ast.Assign):
            (target,) = statement.targets
            assert isinstance(target, ast.Name)
            seen = op.names.get(target.id)
            if target.id in op.tuples:
                target.id = _tuple(target.id)
            elif seen is None or not seen.whole or seen.value not in op.returned:
                return  # an item that is nothing, or a view of another one
            else:
                self._names[seen.value] = target.id = f"v{seen.value.number}"
        value = statement.value  # type: ignore[attr-defined]
        statement.value = _Renaming(self, op, taken).visit(value)  # type: ignore[attr-defined]
        self.lines.append(ast.unparse(ast.fix_missing_locations(statement)))

    def borrows(self, op: KernelOp) -> bool:
        """Whether the op is of the forward pass, and this is the backward pass."""
        return self._code.backward and not op.backward

    def expression(self, seen: Seen, taken: dict[Value, Value]) -> ast.expr:
        """The tensor that a name stood for, by the variables of now."""
        value = taken.get(seen.value, seen.value)
        text = self._view(Seen(value, seen.size, seen.stride, seen.offset))
        return ast.parse(text, mode="eval").body


class _Renaming(ast.NodeTransformer):
    def __init__(self, function: _Function, op: KernelOp, taken: dict[Value, Value]) -> None:
        self._function, self._op, self._taken = function, op, taken

    def visit_Name(self, node: ast.Name) -> ast.expr:
        seen = self._op.names.get(node.id)
        if seen is not None:
            return self._function.expression(seen, self._taken)
        if node.id in self._op.tuples:
            return ast.Name(_tuple(node.id), ast.Load())
        if node.id == self._op.name and self._function.borrows(self._op):
            return ast.Name(f"{_BORROWED}{node.id}", ast.Load())
        return node


def _tuple(name: str) -> str:
    return f"items_{name}"


#: Before the names of kernels of the forward pass in the code of the backward pass.
_BORROWED = "forward_"


def _borrowed(forward: Pass, actions: Iterable[Action]) -> str:
    """The definitions of the forward pass's kernels that the backward pass runs."""
    wanted = {action.op.name for action in actions if isinstance(action, Run) and not action.op.backward}
    found = []
    for node in ast.parse(forward.source).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in wanted:
            found.append(f"{_BORROWED}{ast.get_source_segment(forward.source, node)}\n\n")
    return "".join(found)


def _checks(function: ast.FunctionDef, names: set[str]) -> list[str]:
    """Inductor's checks of the layout of these inputs."""
    found = []
    for node in function.body:
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            continue
        called, args = ast.unparse(node.value.func), node.value.args
        if called == "assert_size_stride" and isinstance(args[0], ast.Name) and args[0].id in names:
            found.append(ast.unparse(node))
        elif called == "assert_size_stride_grouped":
            columns = [column.elts for column in args[:3] if isinstance(column, ast.Tuple)]
            for tensor, size, stride in zip(*columns, strict=True):
                if isinstance(tensor, ast.Name) and tensor.id in names:
                    rest = ", ".join(ast.unparse(one) for one in (tensor, size, stride, *args[3:]))
                    found.append(f"assert_size_stride({rest})")
    return found


_WAIT = "async_compile.wait(globals())"


def _replaced(code: Pass, inputs: Sequence[str], body: Sequence[str], kernels: str) -> str:
    """The source with another body of its function and with more kernels."""
    lines = code.source.splitlines(keepends=True)
    start, end = code.function.lineno - 1, code.function.end_lineno or 0
    margin = " " * (len(lines[start]) - len(lines[start].lstrip()) + 4)
    unpacking = [f"{', '.join(inputs)}, = args", "args.clear()"] if inputs else []
    function = [lines[start], *(f"{margin}{line}\n" for line in [*unpacking, *body])]
    source = "".join([*lines[:start], *function, *lines[end:]])
    if kernels and _WAIT not in source:
        raise NotTakenApart("code that compiles no kernels")
    return source.replace(_WAIT, kernels + _WAIT, 1) if kernels else source


def replaced_by(source: str, other: str) -> str:
    """Other code of one and the same graph. Raises ``RematError`` if it takes or returns another number of values."""
    if _form(source) != _form(other):
        raise RematError("torch generated code of two forms for one graph: a budget cannot be kept; please report it")
    return other


def _form(source: str) -> tuple[int, int]:
    """How many inputs and results the function has."""
    function, names = main_function(ast.parse(source))
    result = function.body[-1]
    values = result.value if isinstance(result, ast.Return) else None
    return len(names), len(values.elts) if isinstance(values, (ast.Tuple, ast.List)) else 1


def digest(source: str) -> str:
    """A text that differs for different code; the number that Inductor gave the graph does not count."""
    lines = (line for line in source.splitlines() if not line.startswith("# AOT ID"))
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
