"""Runs the cases that it is told by name, in a process that has the stand-in: `python -m accelerator.serve LIBRARY`.

Torch takes but one accelerator a process, for good. The tests of everything else run without it.
"""

from __future__ import annotations

import faulthandler
import json
import sys
import traceback
from pathlib import Path

from . import standin


def serve(library: Path) -> None:
    faulthandler.enable()
    standin.register(library)
    from .cases import CASES

    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        case, arguments = CASES[json.loads(line)]
        try:
            case(*arguments)
            answer = ""
        except BaseException:
            answer = traceback.format_exc()
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
