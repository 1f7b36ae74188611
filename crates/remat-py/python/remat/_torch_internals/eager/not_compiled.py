"""Functions that Dynamo never compiles, though compiled code calls them when it runs op by op under a budget."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from types import FunctionType
from typing import Any

from torch._C._dynamo import eval_frame

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
