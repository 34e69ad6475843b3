"""Numbers with units, and ranges: exact, both ends included, and clear where they are wrong."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.config.quantities import MOST_NUMBERS, RATE, Quantity, mebibytes, seconds

COUNT = Quantity(1, 1000)
TIME = seconds(1, 86_400)
MEMORY = mebibytes(32, 1 << 24)


@pytest.mark.parametrize(
    ("quantity", "text", "number"),
    [
        (RATE, "500", 500),
        (RATE, "20k", 20),
        (RATE, "20 kpps", 20),
        (RATE, "1.5M", 1500),
        (RATE, "1.1Mpps", 1100),  # in binary floating point 1100.0000000000002
        (RATE, ".5M", 500),
        (RATE, "20000pps", 20),
        (RATE, "007", 7),
        (TIME, "90", 90),
        (TIME, "90s", 90),
        (TIME, "1.5m", 90),
        (TIME, "1h", 3600),
        (MEMORY, "512M", 512),
        (MEMORY, "2G", 2048),
        (MEMORY, "0.5GiB", 512),
        (COUNT, "4", 4),
    ],
)
def test_a_number_is_read_in_the_plain_unit(quantity: Quantity, text: str, number: int) -> None:
    assert quantity.parse(text) == number and isinstance(quantity.parse(text), int)
    assert quantity.range(text) is None


def test_what_a_value_is_compared_with_may_be_no_whole_number_and_out_of_bounds() -> None:
    assert RATE.read("1.5k") == Fraction(3, 2) and RATE.read("0") == 0 and RATE.read("1000M") == 1_000_000
    with pytest.raises(ValueError, match="unknown unit 'Q'"):
        RATE.read("1Q")


@pytest.mark.parametrize(
    ("quantity", "text", "says"),
    [
        (RATE, "1.5k", "'1.5k' is not a whole number of kpps"),
        (RATE, "1500pps", "not a whole number of kpps"),
        (RATE, "0", "out of range: expected 1 to 200000 kpps"),
        (RATE, "0.2k", "out of range"),
        (RATE, "201M", "out of range"),
        (RATE, "1" * 5000, "out of range"),
        (RATE, "1.5m", r"unknown unit 'm' \(did you mean 'M'\?\): expected one of k, M, pps, kpps, Mpps"),
        (RATE, "5 mpps", r"did you mean 'Mpps'\?"),
        (RATE, "20x", "unknown unit 'x': expected one of k"),
        (RATE, "fast", "not a whole number of kpps: expected one, or one with a unit: k, M, pps, kpps, Mpps"),
        (RATE, "1e3", "not a whole number of kpps"),
        (TIME, "1d", "expected one of s, m, h"),
        (MEMORY, "2g", r"did you mean 'G'\?"),
        (COUNT, "2k", "'2k' is not a whole number$"),
        (COUNT, "1.5", "'1.5' is not a whole number$"),
        (COUNT, "٣", "not a whole number"),
        (COUNT, "", "not a whole number"),
    ],
)
def test_a_wrong_number_says_what_would_be_right(quantity: Quantity, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        quantity.parse(text)


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1-4", [1, 2, 3, 4]),
        ("5-5", [5]),
        ("10-50/10", [10, 20, 30, 40, 50]),
        ("10-160*2", [10, 20, 40, 80, 160]),
        ("16-81*1.5", [16, 24, 36, 54, 81]),
        ("0.5M-2M/0.5M", [500, 1000, 1500, 2000]),
        ("500k-2M/500kpps", [500, 1000, 1500, 2000]),
        ("10k-40k*2", [10, 20, 40]),
        (" 10 - 30 / 10 ".strip(), [10, 20, 30]),
    ],
)
def test_a_range_has_both_ends(text: str, numbers: list[int]) -> None:
    assert list(RATE.range(text) or ()) == numbers


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("10-155/10", "miss its end: expected 10-150/10 or 10-160/10$"),
        ("10-15/10", "expected 10 or 10-20/10$"),
        ("10-100*2", r"expected 10-80\*2 or 10-160\*2$"),
        ("0.5M-2.2M/0.5M", "expected 0.5M-2M/0.5M or 0.5M-2.5M/0.5M$"),
        ("199M-200M/0.3M", "expected 199M-199.9M/0.3M$"),  # 200.2 Mpps is too much
        ("150-10/10", "runs backwards: expected 10-150/10$"),
        ("4-1", "runs backwards: expected 1-4$"),
        ("1-200000", "is 200000 numbers: expected a larger step, for at most 10000"),
        ("10-20/0", "the step 0 is not a whole number of kpps above 0"),
        ("10-20/0.5", "the step 0.5 is not a whole number"),
        ("10-20*1", "the factor 1 is not above 1"),
        ("10-100*1.5", "15 times 1.5 is not a whole number of kpps"),
        ("1M-2M", "has no step: expected one like 1M-2M/1M"),
        ("1-4M/1M", "expected a unit at each number, or at none of them"),
        ("1M-4M/1", "expected a unit at each number"),
        ("0-10", "'0' is out of range"),
        ("10-300M", "'300M' is out of range"),
        ("10-20-30", "is not a range: expected FIRST-LAST, FIRST-LAST/STEP or FIRST-LAST"),
        ("10-", "is not a range"),
        ("10/2", "is not a range"),
        ("10-20*2M", "is not a range"),
    ],
)
def test_a_wrong_range_says_what_would_be_right(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        RATE.range(text)


@pytest.mark.parametrize("text", ["60:7 590:4", "imix", "dc-1:a-b/c", "60 | 64-68", "-5", "fast-er", ""])
def test_what_is_no_range_is_left_to_whoever_knows_it(text: str) -> None:
    assert RATE.range(text) is None


@given(st.integers(1, 1000), st.integers(0, MOST_NUMBERS - 2), st.integers(1, 15), st.integers(0, 14))
def test_every_range_is_whole_or_an_error_whose_ranges_are_right(first: int, steps: int, step: int, missed: int) -> None:
    last = first + steps * step + missed % step
    if missed % step == 0:
        assert list(RATE.range(f"{first}-{last}/{step}") or ()) == [first + number * step for number in range(steps + 1)]
    else:
        with pytest.raises(ValueError, match="miss its end") as caught:
            RATE.range(f"{first}-{last}/{step}")
        for right in str(caught.value).partition("expected ")[2].split(" or "):
            numbers = RATE.range(right) or [RATE.parse(right)]
            assert numbers[0] == first and abs(numbers[-1] - last) < step
