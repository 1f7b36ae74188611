"""The name ``remat`` among the backends of ``torch.compile``. Nothing of torch is loaded for it.

Torch finds backends by the entry points of installed packages, when it is first asked for one that it does not know. A
source tree on the path has no entry points. This module gives them to :mod:`importlib.metadata`, through a finder.
"""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

NAME = "remat"
_ENTRY_POINTS = f"[torch_dynamo_backends]\n{NAME} = remat._compiled.backend_entry:backend\n"


def backend(gm: Any, inputs: Any, **options: Any) -> Any:
    """Compiles a graph of Dynamo's."""
    from .backend import backend

    return backend(gm, inputs, **options)


def announce() -> None:
    """Has ``torch.compile(.., backend="remat")`` find the backend, whether torch was imported before or after."""
    sys.meta_path.append(_SourceTree)  # type: ignore[arg-type]
    if not _may_have_been_read():
        return
    # Both functions are documented for other backends.
    from torch._dynamo import list_backends, register_backend

    if NAME not in list_backends():
        register_backend(backend, name=NAME)


def _may_have_been_read() -> bool:
    """Whether torch may have read the entry points. It imports all of its own backends first, which takes half a
    second: a program that does not compile, but whose optimizer loaded Dynamo, does not wait for that.
    """
    package = "torch._dynamo.backends"
    if package not in sys.modules:
        return False
    modules = (module.name for module in pkgutil.iter_modules(sys.modules[package].__path__))
    return all(f"{package}.{name}" in sys.modules for name in modules if not name.startswith("_"))


class _SourceTree:
    """A finder on ``sys.meta_path`` that finds no module, and one distribution: Remat."""

    @staticmethod
    def find_spec(*_asked: Any) -> None:
        """Finds nothing: modules are for Python's own finders."""

    @staticmethod
    def find_distributions(context: Any = None) -> Iterable[Distribution]:
        """Remat, if it or everything is asked for. Where Remat is installed, Python found that before."""
        return [_distribution()] if getattr(context, "name", None) in (None, NAME) else []


def _distribution() -> Distribution:
    from importlib.metadata import Distribution

    from .._native import __version__

    texts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {NAME}\nVersion: {__version__}\n",
        "entry_points.txt": _ENTRY_POINTS,
    }

    class Remat(Distribution):
        def read_text(self, filename: str) -> str | None:
            return texts.get(filename)

        def locate_file(self, path: Any) -> Any:
            raise FileNotFoundError(path)

    return Remat()
