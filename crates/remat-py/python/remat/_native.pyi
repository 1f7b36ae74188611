"""The Rust part: engine, dispatch mode, command line."""

import os
from collections.abc import Callable
from typing import Any, Literal, TypedDict

import torch

__version__: str

class Settings(TypedDict):
    """Settings of a :class:`Session`; known to type checkers alone."""

    policy: str
    seed: int
    thrash_limit: float | None
    trace: str | os.PathLike[str] | None
    #: Whether the budget moves to the first accelerator that the program uses.
    follow: Literal["fixed", "accelerator"]
    #: Counted bytes, or an arena whose blocks stay in place or may be copied elsewhere.
    memory: Literal["fungible", "arena", "movable arena"]
    #: Costs of ops: their times as measured, or reckoned from their bytes.
    costs: Literal["measured", "bytes"]

class Session:
    def __new__(
        cls,
        torch_internals: Any,
        layout: tuple[int, int],
        budgets: list[tuple[str, torch.device, int | None]],
        settings: Settings,
    ) -> Session: ...
    def enter_native(self, torch_internals: object) -> None: ...
    def adopt(self, storage: torch.UntypedStorage) -> None: ...
    def make_room(self, like: torch.UntypedStorage, bytes: int, what: str) -> None: ...
    def expose(self, storage: torch.UntypedStorage) -> None: ...
    def settings_changed(self) -> None: ...
    def before_resize(self, storage: torch.UntypedStorage, bytes: int, known: bool) -> bool: ...
    def after_resize(self, storage: torch.UntypedStorage) -> None: ...
    def enter_arena(self, bytes: int) -> None: ...
    def leave_arena(self) -> None: ...
    def forked(self) -> bool: ...
    def restore(self) -> None: ...
    def set_budget(self, pool: int, bytes: int | None) -> None: ...
    def stats(self) -> dict[str, Any]: ...
    def mark(self, name: str) -> None: ...

class Deaths:
    def __call__(self, weak: Any) -> None: ...

def parse_bytes(text: str) -> int:
    """Bytes in a text such as ``6GiB``, ``512MB`` or ``1.5g``."""

def format_bytes(bytes: int) -> str: ...
def budget_that_holds(bytes: int) -> int: ...
def plan_chain(chain_json: str, budget: int, strategy: str, slots: str) -> str:
    """The best plan of a chain within so many bytes, as JSON; ``slots`` is a number or ``exact``.

    Raises ``ValueError(message)``, or ``ValueError(message, smallest_bytes)`` where the budget is too small.
    """

def verify_chain(chain_json: str, plan_json: str) -> tuple[float, int]:
    """Makespan and peak bytes of a plan, recomputed apart from the planners; ``ValueError`` where it is not valid."""

def peak_of_chain_run(chain_json: str, sequence_json: str) -> int:
    """Most bytes at once when autograd runs a sequence, each activation dropped once nothing reads it; ``ValueError``
    where autograd cannot run it."""

def chain_needed_later(sequence_json: str) -> list[list[int]]:
    """For each operation of a sequence, the activations that a later one reads before they are made again."""

def plan_cut(
    graph_json: str,
    *,
    budget: int | None = None,
    ban: list[str] = ...,
    allow: list[str] = ...,
    reweight: bool = True,
    tradeoffs: bool = False,
    frontier: bool = False,
) -> str:
    """What to save of a joint graph between forward and backward, as JSON, within so many bytes if a budget is given.

    With ``frontier`` also all plans of which none takes less time and less memory than another, under that name.

    ``ban`` names what is not to be recomputed beside what the rules say, ``allow`` what may be in spite of them. Raises
    ``ValueError(message)``, or ``ValueError(message, smallest_bytes)`` where the budget is too small.
    """

def verify_cut(graph_json: str, plan_json: str) -> tuple[int, int, int]:
    """Cost, nanoseconds recomputed and peak bytes of a plan of a joint graph, worked out apart from the planner."""

def between_groups(graph_json: str) -> str:
    """The values that each fusion group best reads of another, and those that it best computes again, as JSON."""

def policies() -> list[str]:
    """Names of all eviction policies."""

def check_policy(name: str) -> None: ...
def cli(args: list[str]) -> int: ...
def swap_storages(layout: tuple[int, int], a: torch.UntypedStorage, b: torch.UntypedStorage) -> None: ...
def register_native(keys: dict[str, int], libraries: dict[str, str], redispatch: int) -> None: ...
def register_settings(c10: str, cpu: str, flags: list[str]) -> None: ...
def read_settings() -> tuple[list[bool], int, int] | None: ...
def register_watch(c10: str, python: str) -> None: ...
def watch_results() -> None: ...
def is_watched(storage: int) -> bool: ...

class WatchedProbe:
    def __new__(cls, storage: int) -> WatchedProbe: ...
    def is_alive(self) -> bool: ...
    def during(self, action: Callable[[], None]) -> bool: ...
    def object(self) -> torch.UntypedStorage | None: ...
    def died(self) -> list[int]: ...

def describe_boxed(boxed: dict[str, int]) -> None: ...
def include_native(on: bool) -> None: ...
def leave_native() -> None: ...

class Seen(TypedDict):
    """An op that came to the native fallback during a probe; known to type checkers alone."""

    name: str
    #: Tags and payloads of the arguments.
    raw: list[tuple[int, int]]
    #: The offset of a list's items.
    header: int | None
    #: The arguments as the fallback reads them.
    read: list[str]
    #: The first words of a tensor.
    words: list[int]

def capture_native(
    call: Callable[[], object],
    list: tuple[int, list[int]] | None = None,
    tensor: int | None = None,
    raising: bool = False,
) -> list[Seen]: ...
def raise_native() -> None: ...
def register_replays(c10: str, python: str, writable: int, makers: list[Callable[[], object]]) -> None: ...
def rehearse_replay(first: Callable[[], object], second: Callable[[], object]) -> list[torch.UntypedStorage | None]: ...
def replay_natively() -> None: ...
def guard_storage(layout: tuple[int, int], storage: torch.UntypedStorage, up: bool) -> None: ...
