"""A generator's output is data of another machine: whatever it holds, it is understood, left out, or an error of ours."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hostile import answers, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.figures import figures, verdict
from autotest.results.histogram import Histogram, parse_histogram
from autotest.results.moongen import parse_moongen_output

number = st.one_of(
    st.sampled_from(["0", "1.5", "-1", "nan", "inf", "-inf", "1e9", "٣", "", "9" * 19, "9" * 20, "9" * 400, "9" * 5000, "0." + "9" * 5000]),
    st.integers(-5, 10**25).map(str),
)  # fmt: skip
LINES = (
    "[Device: id={}] {}: {} (StdDev {}) Mpps, {} (StdDev {}) Mbit/s ({} Mbit/s with framing), "
    "total {} packets with {} bytes (incl. CRC)",
    "[Device: id={}] {}: {} Mpps, {} Mbit/s ({} Mbit/s with framing)",
    "Samples: {}, Average: {} ns, StdDev: {} ns, Quartiles: {}/{}/{} ns",
    "[WARN]  {}",
    "\x1b[31m[ERROR] {}\x1b[0m",
    "[FATAL] {}{}",
)


@st.composite
def lines(draw: st.DrawFn) -> str:
    shape = draw(st.sampled_from(LINES))
    parts = [
        draw(st.sampled_from(["TX", "RX"])) if index == 1 and "Device" in shape else draw(number)
        for index in range(shape.count("{}"))
    ]
    text = shape.format(*parts)
    return text[: draw(st.integers(0, len(text)))] if draw(st.booleans()) else text


@settings(max_examples=250, deadline=None, database=None)
@given(
    st.lists(st.one_of(lines(), texts, answers), max_size=5), st.one_of(st.none(), st.just(0.0), st.floats(1e-9, 1e6))
)
def test_any_output_gives_figures_that_can_be_written_and_a_verdict(output: list[str], seconds: float | None) -> None:
    parsed = parse_moongen_output("\n".join(output))
    found = figures(parsed, Histogram.of({}), seconds)
    assert str(verdict(found, 10.0, runtime=1).verdict)
    json.dumps(found.to_dict(), allow_nan=False)
    assert found.achieved_kpps is None or math.isfinite(found.achieved_kpps)


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_number_that_no_counter_has_is_no_total(digits: int) -> None:
    line = LINES[0].format(0, "TX", 1, 0, 1, 0, 1, "9" * digits, 64)
    assert parse_moongen_output(line).sent is None


@settings(max_examples=250, deadline=None, database=None)
@given(st.one_of(st.binary(max_size=40), st.lists(st.tuples(number, number), max_size=4).map(
    lambda rows: "".join(f"{left},{right}\n" for left, right in rows).encode()
)))  # fmt: skip
def test_any_bytes_are_a_histogram_or_an_error_that_names_the_file(content: bytes) -> None:
    try:
        parse_histogram(content, str(Path("/there/h.csv")))
    except ResultsError as error:
        assert "/there/h.csv" in str(error)
