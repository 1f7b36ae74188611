"""The program that a command runs as ``__main__``: a script, a folder, an archive, a module or a text, as Python itself
takes them."""

from __future__ import annotations

import argparse
import builtins
import importlib.util
import os
import pkgutil
import sys
import threading
import types
from dataclasses import dataclass, field
from typing import Any, NoReturn

from .standard_error import tell

#: The script that stands for a program on standard input.
STANDARD_INPUT = "-"

#: Whether Python leaves the folder of a program out of ``sys.path`` (``python -P``); up to 3.10 only ``-I`` did.
_SAFE_PATH = getattr(sys.flags, "safe_path", sys.flags.isolated)

#: Entries of ``sys.path`` that Python put before all others for this command, whose place the program's take.
_COMMANDS_OWN = 0 if _SAFE_PATH else 1


@dataclass(frozen=True)
class Program:
    """A program that was found and compiled, and what Python tells it of itself."""

    code: types.CodeType
    #: What it sees as ``sys.argv``.
    argv: list[str]
    #: Where it looks for modules first, as entries of ``sys.path``.
    first: list[str]
    #: Attributes of its module ``__main__``, beside those of every module.
    attributes: dict[str, Any] = field(default_factory=dict)

    def become_main(self) -> dict[str, Any]:
        """Takes the place of the module ``__main__``; returns its namespace."""
        module = types.ModuleType("__main__")
        module.__dict__.update(__builtins__=builtins, **self.attributes)
        sys.modules["__main__"] = module
        sys.argv = list(self.argv)
        sys.path[:_COMMANDS_OWN] = self.first
        return module.__dict__

    def run(self, namespace: dict[str, Any]) -> None:
        """Runs the program. It ends once the threads have ended that it started, as under Python itself."""
        try:
            exec(self.code, namespace)
        except SystemExit:
            _await_threads()
            raise
        _await_threads()


def _folder(path: str) -> list[str]:
    """The entry of ``sys.path`` for the folder of a program, which Python leaves out if its path is to be safe."""
    return [] if _SAFE_PATH else [path]


def _await_threads() -> None:
    """Waits for all threads but this one and daemons, once executors have been told to end theirs: as Python does."""
    ends_of_executors = getattr(threading, "_threading_atexits", None)
    if ends_of_executors is None:
        return  # a Python that does so in another way: idle threads of executors would never end
    for end in reversed(ends_of_executors):
        end()
    here = threading.current_thread()
    while others := [thread for thread in threading.enumerate() if thread is not here and not thread.daemon]:
        for thread in others:
            thread.join()


class Arguments(argparse.ArgumentParser):
    """Arguments of a command, whose faults are told in one line."""

    def error(self, message: str) -> NoReturn:
        """Tells what is wrong with the arguments, and ends the program."""
        sys.exit(fail(f"{message}; see {self.prog} --help"))


def whole_number(text: str) -> int:
    """A number as it is typed; ``ArgumentTypeError`` for one with a fraction, and for what is none."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, such as 2") from None


def number(text: str) -> float:
    """A number as it is typed; ``ArgumentTypeError`` for what is none."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a number, such as 2.5") from None


_SCRIPT = "the script to run; or a folder or zip archive with a file __main__.py; or - for a script on standard input"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Has a command take a program, after its own options."""
    rest = argparse.REMAINDER
    parser.add_argument("-m", dest="module", nargs=rest, metavar="MODULE", help="run a module, as python -m")
    parser.add_argument("-c", dest="code", nargs=rest, metavar="CODE", help="run a text, as python -c")
    parser.add_argument("script", nargs="?", metavar="SCRIPT", help=_SCRIPT)
    parser.add_argument("args", nargs=rest, metavar="ARGUMENT", help="its arguments")


def parse(parser: argparse.ArgumentParser, argv: list[str]) -> argparse.Namespace:
    """A command's own options, and its program with all that follows.

    Argparse sees the former only: of the program's words it would take a ``--`` away.
    """
    own, program = _parted(parser, argv)
    return argparse.Namespace(**{**vars(parser.parse_args(own)), **_program_of(program)})


def _parted(parser: argparse.ArgumentParser, argv: list[str]) -> tuple[list[str], list[str]]:
    """The words that are a command's own, as argparse understands them, and those from the program on."""
    takes_a_word = {name for action in parser._actions if action.nargs != 0 for name in action.option_strings}
    own, rest = [], list(argv)
    while rest and rest[0].startswith("-") and not _begins_program(rest[0]):
        word = rest.pop(0)
        own.append(word)
        if word in takes_a_word and _is_below_zero(rest[:1]):
            own[-1] = f"{word}={rest.pop(0)}"
        elif word in takes_a_word:
            own += rest[:1]
            del rest[:1]
    return own, rest


def _begins_program(word: str) -> bool:
    return word in ("--", STANDARD_INPUT) or word.startswith(("-m", "-c"))


def _program_of(words: list[str]) -> dict[str, Any]:
    """The arguments of :func:`add_arguments` in the words of a program; none where there is no program."""
    first, others = words[:1], words[1:]
    if first == ["--"]:  # a script that may be named like an option
        first, others = others[:1], others[1:]
    elif first and first[0].startswith(("-m", "-c")):
        joined = [first[0][2:]] if first[0][2:] else []
        return {"module" if first[0].startswith("-m") else "code": joined + others}
    return {"script": first[0], "args": others} if first else {}


def _is_below_zero(words: list[str]) -> bool:
    """Whether a word is an amount below 0 such as ``-1%``, which argparse takes for an option."""
    return any(word[:1] == "-" and word[1:2].isdigit() for word in words)


def missing(options: argparse.Namespace) -> str | None:
    """The fault of a command that names no program; ``None`` if it names one."""
    for flag, given in (("-m", options.module), ("-c", options.code)):
        if given == []:
            return f"argument {flag}: expected one argument"
    if options.script is None and options.module is None and options.code is None:
        return "no program to run: expected a script, -m MODULE or -c CODE"
    return None


def fail(message: str) -> int:
    """Tells what is wrong with a command; returns the exit code."""
    tell(f"remat: {message}\n")
    return 2


def find(options: argparse.Namespace) -> Program | int:
    """The program that a command names. Where there is none, the reason was told, and this is the exit code."""
    try:
        if options.module is not None:
            return module(options.module[0], options.module[1:])
        if options.code is not None:
            return text(options.code[0], options.code[1:])
        if options.script == STANDARD_INPUT:
            return standard_input(options.args)
        return folder_or_archive(options.script, options.args) or script(options.script, options.args)
    except OSError as error:
        return fail(f"cannot read the script {options.script!r}: {error.strerror}")
    except ImportError as error:
        return fail(f"{options.script!r}: {error}" if options.module is None else f"-m {options.module[0]}: {error}")
    except (SyntaxError, ValueError) as error:
        # Python prints it without a traceback too: nothing ran.
        sys.excepthook(type(error), error.with_traceback(None), None)
        return 1


def script(path: str, arguments: list[str]) -> Program:
    """A script, by its path. ``OSError`` if it cannot be read, ``SyntaxError`` or ``ValueError`` if it is no Python."""
    place = os.path.join(os.getcwd(), path)  # as Python names it
    with open(path, "rb") as file:
        code = compile(file.read(), place, "exec", dont_inherit=True)
    folder = os.path.dirname(os.path.realpath(path))
    return Program(code, [path, *arguments], _folder(folder), {"__file__": place, "__cached__": None})


def folder_or_archive(path: str, arguments: list[str]) -> Program | None:
    """The ``__main__.py`` of a folder or a zip archive; ``None`` for other files. ``ImportError`` if there is none."""
    place = os.path.join(os.getcwd(), path)
    finder = pkgutil.get_importer(place)
    if finder is None:
        return None
    spec = finder.find_spec("__main__")
    code = _code_of(spec, "__main__") if spec is not None else None
    if code is None:
        raise ImportError("there is no __main__.py in it: name a script, or run a module by -m")
    return Program(code, [path, *arguments], [place], _told_by(spec))  # on a safe path too


def standard_input(arguments: list[str]) -> Program:
    """A script on standard input, all of which is read; ``SyntaxError`` or ``ValueError`` if it is no Python."""
    with open(0, "rb", closefd=False) as stream:
        code = compile(stream.read(), "<stdin>", "exec", dont_inherit=True)
    return Program(code, [STANDARD_INPUT, *arguments], _folder(""), {"__file__": "<stdin>", "__cached__": None})


def text(source: str, arguments: list[str]) -> Program:
    """A text, as ``python -c`` takes it; ``SyntaxError`` if it is no Python."""
    return Program(compile(source, "<string>", "exec", dont_inherit=True), ["-c", *arguments], _folder(""))


def module(name: str, arguments: list[str]) -> Program:
    """A module or a package, as ``python -m`` takes it; ``ImportError`` that says why there is none.

    Packages around it are imported, as Python does before it runs one.
    """
    folder = _folder(os.getcwd())
    sys.path[:_COMMANDS_OWN] = folder
    spec = _spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        package, name = name, f"{name}.__main__"
        spec = _spec(name)
        if spec is None:
            raise ImportError(f"{package!r} is a package without a module __main__, and cannot be run")
    if spec is None:
        raise ImportError(f"there is no module {name!r}")
    code = _code_of(spec, name)
    if code is None:
        raise ImportError(f"the module {name!r} is not written in Python")
    return Program(code, [spec.origin or name, *arguments], folder, _told_by(spec))


def _code_of(spec: Any, name: str) -> types.CodeType | None:
    return spec.loader.get_code(name) if hasattr(spec.loader, "get_code") else None


def _told_by(spec: Any) -> dict[str, Any]:
    """The attributes of a module that was found so."""
    return {
        "__file__": spec.origin,
        "__cached__": spec.cached,
        "__loader__": spec.loader,
        "__package__": spec.parent,
        "__spec__": spec,
    }


def _spec(name: str) -> Any:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        # Of the module itself, or of what a package around it imports.
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            return None
        raise
    except ValueError:
        return None  # a name such as "..train"
