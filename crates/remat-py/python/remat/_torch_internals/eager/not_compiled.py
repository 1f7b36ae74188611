"""Functions that Dynamo never compiles: those that compiled code calls when it runs op by op under a budget, and
torch's own rules for shapes.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from itertools import repeat
from pathlib import Path
from types import CellType, FunctionType
from typing import Any

from torch._C._dynamo import eval_frame
from torch._compile import _disable_dynamo

_HERE = str(Path(__file__).parent)


def keep_from_dynamo(members: Iterable[Any]) -> None:
    """Has Dynamo skip the functions among these, and all that they call; releases that cannot be told compile them."""
    skip = getattr(getattr(eval_frame, "_FrameAction", None), "SKIP", None)
    if skip is None:
        return
    strategy = eval_frame._FrameExecStrategy(skip, skip)
    for member in members:
        # The code of a decorated function may be the decorator's, which other functions share.
        if isinstance(member, FunctionType) and member.__code__.co_filename.startswith(_HERE):
            eval_frame.set_code_exec_strategy(member.__code__, strategy)


# Under this name torch keeps what a function is once Dynamo was told not to compile it.
_DISABLED = "__dynamo_disable"
_LOADS_DYNAMO = getattr(_disable_dynamo(lambda: None), "__code__", None)


@functools.cache
def _rules() -> list[FunctionType]:
    """The functions among torch's rules for shapes that Dynamo must not compile, without what tells it so."""
    from torch._decomp import global_decomposition_table

    found: list[FunctionType] = []
    waiting: list[Any] = [rule for table in global_decomposition_table.values() for rule in table.values()]
    seen: set[int] = set()
    while waiting:
        rule = waiting.pop()
        if not isinstance(rule, FunctionType) or id(rule) in seen:
            continue
        seen.add(id(rule))
        within = [cell.cell_contents for cell in rule.__closure__ or () if cell != CellType()]
        waiting += within
        if rule.__code__ is _LOADS_DYNAMO:
            found += [function for function in within if isinstance(function, FunctionType)]
    return found


def call_without_loading_dynamo(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Calls what may apply torch's rules for shapes.

    At the first call of a rule torch loads Dynamo, to tell it not to compile that. This takes longer than a second, and
    a package that it loads drops what the handler of a signal raises meanwhile. Where Dynamo is not there it compiles
    nothing, and need not be told.
    """
    if "torch._dynamo" in sys.modules:
        return function(*args, **kwargs)
    rules = _rules()
    try:
        # No handler of a signal runs amid these calls, so that all is as it was.
        list(map(setattr, rules, repeat(_DISABLED), rules))
        return function(*args, **kwargs)
    finally:
        list(map(dict.pop, map(vars, rules), repeat(_DISABLED), repeat(None)))
