"""The limits by which Inductor's lowering writes a value, or else has each reader compute it again."""

from __future__ import annotations

from dataclasses import dataclass

from torch._inductor import config

# Ops that a CPU takes long for; Inductor writes their results there (``StorageBox.should_realize_on_reuse``). Each with
# the bytes that are read in about the time of one element. The numbers are fixed, so that plans do not depend on the
# machine.
HEAVY = {"exp": 8, "log": 8, "log10": 8, "log1p": 8, "log2": 8, "sigmoid": 8, "tanh": 24}


@dataclass(frozen=True)
class LoweringRules:
    """Limits above which a value is written."""

    #: Buffers that a value with several readers may be computed from.
    reads_shared: int
    #: Buffers that any value may be computed from.
    reads: int
    #: Ops between a value and the written values that it is computed from.
    ops: int
    #: Ops that may not be among them where a value has several readers; with the bytes read in the time of an element.
    heavy: dict[str, int]

    @classmethod
    def of_inductor(cls, cpu: bool) -> LoweringRules:
        """The limits of ``torch._inductor.config``, whose names differ between versions of torch."""

        def limit(name: str) -> int:
            value = getattr(config, f"realize_{name}_threshold", None)
            if value is not None:
                return int(value)
            default = getattr(config, f"_realize_{name}_threshold_default")
            return int(getattr(config, f"realize_cpu_{name}_threshold", default) if cpu else default)

        return cls(limit("reads"), limit("acc_reads"), limit("opcount"), HEAVY if cpu else {})
