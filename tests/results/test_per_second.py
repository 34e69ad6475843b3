"""What the lines of each second tell: seconds without reception, and a generator that was ended early."""

from __future__ import annotations

import pytest
import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.moongen import parse_moongen_output
from autotest.results.per_second import (
    dropouts,
    longest_sending,
    sending_rate,
    shown_rate,
    shown_seconds,
)

WORKS, SILENT = sample.second(), sample.second("0.00 0")


def found(*seconds: str) -> tuple[int, ...] | None:
    return dropouts(parse_moongen_output(sample.output(seconds="".join(seconds))))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([WORKS] * 5, ()),
        ([WORKS, WORKS, SILENT, WORKS, WORKS], (3,)),
        ([WORKS, SILENT, SILENT, WORKS, SILENT, WORKS], (2, 3, 5)),
        # The reflector dies half way: nothing comes back any more.
        ([WORKS] * 3 + [SILENT] * 4, (4, 5, 6)),
        # Sending begins and ends in the first and the last second.
        ([SILENT, WORKS, WORKS, SILENT], ()),
        # A line of reception more, from after the end of sending.
        ([WORKS, WORKS, SILENT, WORKS, sample.rate_line(0, "RX", "0.00", "0")], (3,)),
        # Nothing was sent in that second, so nothing could come back.
        ([WORKS, WORKS, sample.second("0.00 0", "0.00 0"), WORKS, WORKS], ()),
        # Not a drop-out: some frames came back.
        ([WORKS, WORKS, sample.second("0.00 1"), WORKS, WORKS], ()),
        ([WORKS, WORKS, sample.second("0.01 0"), SILENT, WORKS, WORKS], (4,)),
        ([WORKS, WORKS, sample.second("nan nan"), WORKS, WORKS], ()),
        # Too few frames were sent to tell, but for some seconds.
        ([sample.second("0.01 5", "0.01 5")] * 3 + [sample.second("0.00 0", "0.01 4")] * 3, ()),
    ],
)
def test_seconds_without_reception_are_found(seconds: list[str], expected: tuple[int, ...]) -> None:
    assert found(*seconds) == expected


@pytest.mark.parametrize(
    "seconds",
    [
        [],
        [WORKS, WORKS],
        [sample.second("0.00 4", "0.00 4")] * 9,
        [sample.second("0.01 5", "nan nan")] * 9,
        # Receive livelock: next to nothing comes back at any time.
        [SILENT, SILENT, sample.second("0.00 1"), SILENT, SILENT, SILENT],
        [sample.rate_line(0, "RX")] * 9,
    ],
)
def test_where_no_second_can_tell_it_is_not_known_whether_there_were_dropouts(seconds: list[str]) -> None:
    assert (
        dropouts(parse_moongen_output("".join(seconds) + sample.total_line(0, "RX", 3) + sample.total_line(0, "TX", 4))) is None
    )


def test_without_totals_or_reception_nothing_is_known() -> None:
    assert dropouts(parse_moongen_output("")) is None
    assert dropouts(parse_moongen_output(WORKS * 9 + sample.total_line(0, "TX", 4))) == ()
    assert dropouts(parse_moongen_output(sample.rate_line(0, "TX") * 9 + sample.total_line(0, "TX", 4))) is None


def test_only_the_device_with_the_traffic_counts() -> None:
    quiet = sample.second("0.00 0", device=1) * 5 + sample.total_line(1, "RX", 0) + sample.total_line(1, "TX", 7)
    assert dropouts(parse_moongen_output(quiet + sample.output())) == ()
    busy = (sample.rate_line(0, "RX") + sample.rate_line(1, "RX") + sample.rate_line(0, "TX") + sample.rate_line(1, "TX")) * 3
    lines = busy + sample.second("0.00 0", device=1) + busy
    assert dropouts(parse_moongen_output(sample.output(device=1, seconds=lines))) == (4,)


@given(st.lists(st.sampled_from([WORKS, SILENT, sample.second("0.00 0", "0.00 0"), sample.second("0.00 2")]), max_size=12))
def test_what_is_found_is_silent_and_within_the_run(seconds: list[str]) -> None:
    numbers = found(*seconds)
    inner = range(2, len(seconds))
    works = any(seconds[number - 1] == WORKS for number in inner)
    assert numbers == (tuple(number for number in inner if seconds[number - 1] == SILENT) if works else None) or not seconds


def test_a_run_lasted_no_longer_than_its_lines() -> None:
    bound = longest_sending(parse_moongen_output(sample.output(seconds=WORKS * 10)))
    assert bound is not None and 10 < bound < 13
    for runtime in (2, 30, 3600):  # lines come at least 1.01 s apart, and one may be missing at the end
        lines = int(runtime / 1.01) - 1
        bound = longest_sending(parse_moongen_output(sample.output(seconds=WORKS * lines) if lines else ""))
        assert bound is None or bound >= runtime
    assert longest_sending(parse_moongen_output("")) is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        ((), ""),
        ((4,), "4"),
        ((3, 12, 13, 14), "3, 12-14"),
        (tuple(range(1, 99, 2)), "1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 39 more times"),
    ],
)
def test_seconds_are_shown_as_ranges(seconds: tuple[int, ...], text: str) -> None:
    assert shown_seconds(seconds) == text


def line_of(kpps: float, frame_bytes: float, direction: str = "TX") -> str:
    """The line of a second at that rate, as MoonGen rounds it."""
    mbit = kpps * 1e3 * (frame_bytes + 4) * 8 / 1e6
    wire = mbit + kpps * 1e3 * 20 * 8 / 1e6
    colour = "\x1b[0;34m" if direction == "TX" else "\x1b[1;36m"
    return (
        f"{colour}[Device: id=0] {direction}\x1b[0m: {kpps / 1e3:.2f} Mpps, {mbit:.0f} Mbit/s ({wire:.0f} Mbit/s with framing)\n"
    )


@given(st.floats(0, 30_000), st.integers(60, 1514))
def test_the_rate_of_a_second_lies_between_its_bounds_which_are_as_close_as_its_digits_allow(
    kpps: float, frame_bytes: int
) -> None:
    rate = sending_rate(line_of(1.0, 60) + line_of(kpps + 50, frame_bytes, "RX") + line_of(kpps, frame_bytes), frame_bytes)
    assert rate
    assert rate[0] - 1e-6 <= kpps <= rate[1] + 1e-6
    assert rate[1] - rate[0] <= 1e3 / 8 / (frame_bytes + 4 + 20) + 1e-6


def test_without_a_whole_line_of_sending_no_rate_is_known() -> None:
    line = line_of(20, 60)
    assert sending_rate("", 60) is None and sending_rate(line_of(20, 60, "RX"), 60) is None
    assert all(sending_rate(line[:length], 60) is None for length in range(len(line) - 1))
    assert sending_rate(sample.output(), 60) is not None, "nor is one made of the totals behind it"


def test_a_mix_whose_second_had_other_sizes_than_usual_still_has_a_rate() -> None:
    rate = sending_rate(line_of(20, 120), 60)
    assert rate and rate[0] <= rate[1]


@pytest.mark.parametrize(
    ("rate", "shown"),
    [((19.6, 20.2), "20 kpps"), ((18.6, 20.1), "19-20 kpps"), ((0.98, 2.23), "1-2 kpps"), ((0, 0.7), "0-1 kpps"),
     ((99.96, 100.04), "100.0 kpps"), ((3, 3.02), "3.0 kpps"), ((5.02, 5.2), "5.0-5.2 kpps"),
     ((21059, 21061), "21059-21061 kpps"),
     ((14879.9, 14880.2), "14880 kpps")],
)  # fmt: skip
def test_a_rate_is_shown_with_no_more_digits_than_are_known(rate: tuple[float, float], shown: str) -> None:
    assert shown_rate(rate) == shown
