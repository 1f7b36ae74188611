"""The name ``remat`` among the backends of ``torch.compile``, without torch's compiler being loaded for it.

Torch finds backends by the entry points of what is installed, the first time that it is asked for one it does not know.
A source tree on the path has none: :mod:`importlib.metadata` is told of it here, by its own extension point.
"""

from __future__ import annotations

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
    """Makes ``torch.compile(.., backend="remat")`` find the backend; it does not matter who came first."""
    sys.meta_path.append(_SourceTree)  # type: ignore[arg-type]
    if "torch._dynamo" not in sys.modules:
        return
    # Torch may have asked for entry points before. The two are documented for backends of others.
    from torch._dynamo import list_backends, register_backend

    if NAME not in list_backends():
        register_backend(backend, name=NAME)


class _SourceTree:
    """A finder on ``sys.meta_path`` that finds no module, and Remat among the distributions."""

    @staticmethod
    def find_spec(*_asked: Any) -> None:
        """Nothing: Python's own finders do."""

    @staticmethod
    def find_distributions(context: Any = None) -> Iterable[Distribution]:
        """Remat, if it or everything is asked for; where it is installed, that was found before."""
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
