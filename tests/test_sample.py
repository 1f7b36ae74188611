"""Samples of cross products hold every value, and every pair with `--all`."""

from __future__ import annotations

from sample import one_of_each


def test_every_value_runs_once_and_all_pairs_are_there() -> None:
    names, shares = [f"name{number}" for number in range(40)], (0.8, 0.5, 0.3)
    cases = one_of_each(names, shares)
    assert sorted(case.values for case in cases) == sorted((name, share) for name in names for share in shares)
    drawn = [case.values for case in cases if not case.marks]
    assert [name for name, _ in drawn] == names
    assert {share for _, share in drawn} == set(shares)
    assert drawn == [case.values for case in one_of_each(names, shares) if not case.marks]


def test_an_addition_moves_no_other() -> None:
    fewer = {case.values for case in one_of_each("abcdef", (1, 2, 3)) if not case.marks}
    more = {case.values for case in one_of_each("abcxdefy", (1, 2, 3)) if not case.marks}
    assert fewer < more
