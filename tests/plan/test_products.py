"""Products without parts of them: exactly what is left, in order, in few blocks, and counted by reason."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from autotest.plan.products import Part, without

LISTS = st.lists(st.lists(st.integers(0, 4), min_size=0, max_size=4, unique=True), min_size=1, max_size=4)


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[list[int]], list[Part]]:
    lists = draw(LISTS)
    subset = st.frozensets(st.integers(0, 4), max_size=4)
    parts = draw(st.lists(st.dictionaries(st.integers(0, len(lists) - 1), subset, min_size=1), max_size=4))
    return lists, [Part(f"reason {number}", values) for number, values in enumerate(parts)]


@given(problems())
def test_exactly_what_is_in_no_part_is_left_in_the_order_of_the_product(problem: tuple[list[list[int]], list[Part]]) -> None:
    lists, parts = problem
    expected = [
        values
        for values in product(*lists)
        if not any(all(values[at] in taken for at, taken in part.values.items()) for part in parts)
    ]
    left = without(lists, parts)
    assert [block.first + rest for block in left.blocks() for rest in product(*block.rest)] == expected
    assert sum(left.taken.values()) + len(expected) == len(list(product(*lists)))


def test_values_that_are_in_the_same_parts_stay_together() -> None:
    numbers = list(range(1000))
    high = Part("high", {0: frozenset(range(900, 1000)), 1: frozenset([7])})
    left = without([numbers, numbers, "ab"], [high, Part("b", {2: frozenset("b")})])
    assert [[len(values) for values in block.rest] for block in left.blocks()] == [[900, 1000, 1], [100, 999, 1]]
    assert left.taken == {"high": 100, "b": 1_000_000}


def test_lists_before_the_first_one_that_matters_stay_outside() -> None:
    left = without(["xy", [1, 2, 3], "ab"], [Part("3b", {1: frozenset([3]), 2: frozenset("b")})])
    found = [(block.first, [list(values) for values in block.rest]) for block in left.blocks()]
    assert found == [((name,), rest) for name in "xy" for rest in ([[1, 2], ["a", "b"]], [[3], ["a"]])]
    assert left.taken == {"3b": 2}
