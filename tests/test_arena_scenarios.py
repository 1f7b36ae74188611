"""Scenarios of training within arenas: evicted by windows and moved, the bits are those of the plain run."""

from __future__ import annotations

from pathlib import Path

import pytest
from preloaded_arena import LIBRARY
from process import PYTHON, ran_warm

DRIVER = Path(__file__).with_name("arena_scenarios.py")

# Views, in-place ops and random numbers; networks; optimizers and what hands out memory. Each group is a process.
# Without --all every other scenario runs.
GROUPS = {
    "values": [
        *("in_place_on_slices", "in_place_on_views", "index_put_in_place", "dropout_family", "random_sources"),
        *("foreach_and_out_variants", "detached_in_place", "complex_fft", "sort_cumsum_flip", "explicit_generators"),
    ],
    "networks": [
        *("batch_norm_network", "u_net", "lstm", "gru", "tree_lstm", "unrolled_gan", "transformer_layers"),
        *("double_backward", "checkpoint_reentrant", "autocast_bf16"),
    ],
    "training": [
        *("optimizer_adamw_foreach", "optimizer_sgd_fused", "gradient_accumulation_and_clipping", "deep_copies"),
        *("handed_out_as_numpy_arrays", "handed_out_as_data_pointers", "arrays_from_outside"),
        *("data_assignment_and_set", "embedding_with_sparse_gradient", "data_loader_with_two_workers"),
    ],
}


@pytest.mark.parametrize("group", GROUPS)
def test_scenarios_have_the_same_bits_within_arenas(group: str, request: pytest.FixtureRequest) -> None:
    names = GROUPS[group][:: 1 if request.config.getoption("--all") else 2]
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, DRIVER, "0.6", "coop", *names])
    said = ended.out.splitlines()
    assert ended.code == 0, "\n".join(said) + ended.err
    assert len(said) == len(names)
    evicted = [line for line in said if " SAME " in line and " 0 evictions" not in line]
    assert len(evicted) > len(said) // 2, "\n".join(said)


@pytest.mark.parametrize("policy", ["dte", "dtr-eq"])
def test_policies_that_evict_one_by_one_have_the_same_bits(policy: str) -> None:
    names = ["batch_norm_network", "dropout_family", "lstm_cells_unrolled"]
    ended = ran_warm(["env", f"LD_PRELOAD={LIBRARY}", *PYTHON, DRIVER, "0.8", policy, *names])
    assert ended.code == 0, ended.out + ended.err
    assert len(ended.out.splitlines()) == len(names)
