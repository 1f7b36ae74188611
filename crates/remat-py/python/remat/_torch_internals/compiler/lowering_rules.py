"""When Inductor's lowering writes a value that several ops read, and when it has each of them compute it again."""

from __future__ import annotations

from dataclasses import dataclass

from torch._inductor import config

# On a CPU, what takes long there is written (``StorageBox.should_realize_on_reuse``): each with the bytes that are read
# in about the time that one element takes. Fixed, so that plans do not change from machine to machine.
_HEAVY = {"exp": 8, "log": 8, "log10": 8, "log1p": 8, "log2": 8, "sigmoid": 8, "tanh": 24}


@dataclass(frozen=True)
class LoweringRules:
    """Above these a value is written."""

    #: Buffers that a value with several readers is computed from.
    reads_shared: int
    #: Buffers that any value is computed from.
    reads: int
    #: Ops that it is computed by since the last that was written.
    ops: int
    #: Ops of which none may be among them where there are several readers; what an element of them is worth in bytes.
    heavy: dict[str, int]

    @classmethod
    def of_inductor(cls, cpu: bool) -> LoweringRules:
        """As ``torch._inductor.config`` says; its names differ between versions."""

        def limit(name: str) -> int:
            value = getattr(config, f"realize_{name}_threshold", None)
            if value is not None:
                return int(value)
            default = getattr(config, f"_realize_{name}_threshold_default")
            return int(getattr(config, f"realize_cpu_{name}_threshold", default) if cpu else default)

        return cls(limit("reads"), limit("acc_reads"), limit("opcount"), _HEAVY if cpu else {})
