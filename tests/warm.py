"""Python programs in processes that are forked from one which has loaded torch and Remat: loading takes seconds.

The program is the real one, in a process of its own, with its own arguments, environment, folder and streams, and it
ends as any other. How a program starts, loads torch, and is sent signals is held by tests that start Python anew.
"""

from __future__ import annotations

import atexit
import builtins
import functools
import gc
import importlib
import importlib.machinery
import json
import os
import resource
import select
import shutil
import socket
import sys
import tempfile
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

#: Variables that programs read while they run; others are read while libraries load.
READ_LATE = {"HOME", "OLDPWD", "OUT", "PATH", "PWD", "SHLVL", "TORCHINDUCTOR_CACHE_DIR", "_"}
READ_LATE_PREFIXES = ("PYTEST_", "REMAT_", "XDG_")
#: In an environment that was prepared for programs of a shell: the socket, and what torch was loaded with there.
SOCKET, LOADED = "REMAT_TESTS_WARM_SOCKET", "REMAT_TESTS_WARM_LOADED"


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that libraries read while they load."""
    return {
        name: value
        for name, value in environment.items()
        if name not in READ_LATE and not name.startswith(READ_LATE_PREFIXES)
    }


def _loaded(environment: Mapping[str, str]) -> str:
    return json.dumps(read_early(environment), sort_keys=True)


@functools.cache
def _started(loaded: str) -> str:
    """The socket of a process that loaded torch in this environment. It ends with this process."""
    import subprocess  # not for programs of a shell, which start at once

    folder = tempfile.mkdtemp(prefix="remat-warm-")
    where = os.path.join(folder, "socket")
    late = {name: os.environ[name] for name in READ_LATE if name in os.environ}
    process = subprocess.Popen(
        [sys.executable, __file__, where],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**json.loads(loaded), **late},
        start_new_session=True,
        text=True,
    )

    def end() -> None:
        assert process.stdin is not None
        process.stdin.close()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    assert process.stdout is not None
    said = process.stdout.readline()
    assert said == "ready\n", f"there is no process to fork programs from: {said!r}"
    return where


def runs(arguments: Sequence[str]) -> bool:
    """Whether ``python ARGUMENT...`` can be forked: a script, module or text, and no option of Python's own."""
    return bool(arguments) and (arguments[0] in ("-c", "-m") or not arguments[0].startswith("-"))


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    streams: tuple[int, int, int],
    folder: str | Path | None = None,
    processor_seconds: int | None = None,
) -> int:
    """Runs ``python ARGUMENT...``; returns its exit code, negative where a signal killed it.

    Where this function is left by an exception, the program is killed.
    """
    where = environment.get(SOCKET) or _started(_loaded(environment))
    told = json.dumps(
        {
            "arguments": list(arguments),
            "environment": {name: value for name, value in environment.items() if name not in (SOCKET, LOADED)},
            "folder": str(folder or os.getcwd()),
            "processor_seconds": processor_seconds,
        }
    ).encode()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(where)
        socket.send_fds(connection, [len(told).to_bytes(8, "big")], streams)
        connection.sendall(told)
        return int.from_bytes(_exactly(connection, 4), "big", signed=True)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        part = connection.recv(count - len(found))
        if not part:
            raise EOFError("the other end has gone")
        found += part
    return found


def for_a_shell(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which a shell finds `python` and `remat` in this folder, which fork where they can."""
    for name, first in (("python", ""), ("remat", "-m remat ")):
        program = folder / name
        program.write_text(
            f'#!/bin/sh\nexec "{sys.executable}" -I -S "{__file__}" --run "{sys.executable}" {first}"$@"\n'
        )
        program.chmod(0o755)
    there = {**environment, "PATH": os.pathsep.join((str(folder), environment["PATH"]))}
    loaded = _loaded(there)
    return {**there, SOCKET: _started(loaded), LOADED: loaded}


def _run_for_a_shell(python: str, arguments: list[str]) -> None:
    if not runs(arguments) or os.environ.get(LOADED) != _loaded(os.environ):
        os.execv(python, [python, *arguments])
    seconds, _ = resource.getrlimit(resource.RLIMIT_CPU)
    limit = None if seconds == resource.RLIM_INFINITY else seconds
    code = run(arguments, os.environ, (0, 1, 2), processor_seconds=limit)
    if code < 0:
        os.kill(os.getpid(), -code)
    sys.exit(code)


def _serve(where: str) -> Callable[[], None]:
    """Forks a process for each connection; returns there, with the program to run."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(where)
    listening.listen(16)
    poll = select.poll()
    poll.register(listening, select.POLLIN)
    poll.register(0, select.POLLHUP)
    ended: dict[int, tuple[int, socket.socket]] = {}  # by the descriptor that tells of a process's end
    asker: dict[int, int] = {}  # by the connection: who asked has gone
    print("ready", flush=True)
    while True:
        for number, _ in poll.poll():
            if number == 0:
                for process, _ in ended.values():
                    os.kill(process, 9)
                os._exit(0)
            elif number == listening.fileno():
                connection, _ = listening.accept()
                process = os.fork()
                if process == 0:
                    listening.close()
                    for other, (_, others) in ended.items():
                        os.close(other)
                        others.close()
                    return _asked(connection)
                end = os.pidfd_open(process)
                ended[end], asker[connection.fileno()] = (process, connection), process
                poll.register(end, select.POLLIN)
                poll.register(connection, select.POLLRDHUP)
            elif number in ended:
                process, connection = ended.pop(number)
                poll.unregister(number)
                os.close(number)
                code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
                if asker.pop(connection.fileno(), None):
                    poll.unregister(connection)
                    connection.sendall(code.to_bytes(4, "big", signed=True))
                connection.close()
            elif number in asker:
                poll.unregister(number)
                os.kill(asker.pop(number), 9)


def _asked(connection: socket.socket) -> Callable[[], None]:
    """Makes this process the one that is asked for; returns its program."""
    size, streams, _, _ = socket.recv_fds(connection, 8, 3)
    asked = json.loads(_exactly(connection, int.from_bytes(size, "big")))
    connection.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(asked["folder"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    if (seconds := asked["processor_seconds"]) is not None:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    return _program(asked["arguments"])


def _program(arguments: list[str]) -> Callable[[], None]:
    """As Python begins with these arguments."""
    sys.orig_argv = [sys.executable, *arguments]
    main = types.ModuleType("__main__")
    main.__dict__.update(__builtins__=builtins, __annotations__={})
    sys.modules["__main__"] = main
    kind, *more = arguments
    if kind == "-m":
        import runpy

        sys.argv, sys.path[0] = ["-m", *more[1:]], os.getcwd()
        return functools.partial(runpy._run_module_as_main, more[0])  # type: ignore[attr-defined]
    if kind == "-c":
        sys.argv, sys.path[0] = ["-c", *more[1:]], ""
        text: Any = more[0]
        name = "<string>"
        main.__dict__["__loader__"] = importlib.machinery.BuiltinImporter
    else:
        sys.argv, sys.path[0] = arguments, os.path.dirname(os.path.realpath(kind))
        text, name = Path(kind).read_bytes(), kind
        main.__dict__.update(
            __file__=kind, __cached__=None, __loader__=importlib.machinery.SourceFileLoader("__main__", kind)
        )
    return lambda: exec(compile(text, name, "exec", dont_inherit=True), main.__dict__)


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        _run_for_a_shell(sys.argv[2], sys.argv[3:])
    else:
        for module in ("remat._online.budget", "remat._cli", "torch._dynamo"):
            importlib.import_module(module)
        # Programs share the memory of what was loaded until they write to it. Collections would, and the one at a
        # program's end takes a second.
        gc.collect()
        gc.freeze()
        _serve(sys.argv[1])()
