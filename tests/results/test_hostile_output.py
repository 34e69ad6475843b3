"""A generator's output is data of another machine: whatever it holds, it is understood, left out, or an error of ours."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import pytest
from examples import examples
from hostile import answers, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.figures import figures, verdict
from autotest.results.guest_latencies import parse_guest_latencies
from autotest.results.histogram import Histogram, parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.verdicts import Verdict

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
    "[INFO]  Guest {} (52:54:00:fa:00:60): sent {} frames with {} bytes, received {} frames with {} bytes (incl. CRC), {} latency samples",
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


outputs = st.one_of(
    st.binary(max_size=200),
    st.lists(st.one_of(lines(), texts, answers), max_size=8).map(
        lambda parts: "\n".join(parts).encode("utf-8", "surrogateescape")
    ),
)
histograms = st.one_of(
    st.none(), st.dictionaries(st.integers(0, 10**15 - 1), st.integers(1, 10**12), max_size=5).map(Histogram.of)
)
counts = st.integers(0, 10**19)
several = st.one_of(
    st.none(),
    st.dictionaries(st.integers(1, 5), st.dictionaries(st.integers(0, 10**6), st.integers(1, 9), max_size=3).map(Histogram.of)),
)


@settings(max_examples=examples(400))
@given(
    outputs,
    histograms,
    st.one_of(st.none(), st.just(0.0), st.floats(1e-9, 1e6)),
    st.one_of(st.none(), st.tuples(counts, counts)),
    st.sampled_from([0.0, 10.0, 1e-3]),
    st.integers(0, 3),
    several,
)
def test_any_output_gives_figures_that_can_be_written_and_a_verdict(
    output: bytes, histogram: Histogram | None, seconds: float | None, interface: tuple[int, int] | None, offered: float,
    guests: int, of_guests: dict[int, Histogram] | None,
) -> None:  # fmt: skip
    numbers = range(1, guests + 1)
    found = figures(
        parse_moongen_output(output), histogram, seconds, interface=interface, guests=numbers, guest_latencies=of_guests
    )
    judgement = verdict(found, offered, runtime=1)
    assert bool(judgement.reason) == (judgement.verdict is not Verdict.VALID)
    assert json.loads(json.dumps(found.to_dict(), allow_nan=False)).keys() == found.to_dict().keys()
    assert found.loss is None or 0 <= found.loss <= 1
    assert found.lost is None or found.lost >= 0
    assert found.fairness is None or 0 < found.fairness <= 1
    assert found.mean_size is None or math.isfinite(found.mean_size)
    assert found.achieved_kpps is None or math.isfinite(found.achieved_kpps)
    assert (found.dropout_seconds is None) <= (found.dropouts == ())


@pytest.mark.parametrize(
    "text",
    ["\x1b[" * 200_000, ", total " * 120_000, "[Device: id=" * 80_000, "[INFO]" * 160_000, "[INFO] \r" * 100_000, "Samples: " * 100_000,
     "Samples: \n" * 100_000, "[Device: id=0] RX: " * 50_000, "Test frames: sent " * 50_000, "[Device: id=0] RX: 0.00 Mpps, 0 Mbit/s (\n" * 20_000,
     "[INFO]  Guest 1 (" * 60_000, "[INFO]" + " " * 1_000_000 + "Guest ", "[INFO]  Guest 1 (52:54:00:fa:00:60): sent " * 25_000,
     "".join(f"[INFO]  Guest {number} (52:54:00:fa:00:60): sent 1 frames with 64 bytes, received 1 frames with 64 bytes (incl. CRC), 1 latency "
             "samples\n" for number in range(1, 9000))],
    ids=lambda text: text[:12].encode("unicode_escape").decode(),
)  # fmt: skip
def test_no_output_takes_long(text: str) -> None:
    start = time.process_time()
    figures(parse_moongen_output(text), None, 1.0)
    assert time.process_time() - start < 2


@pytest.mark.parametrize("digits", [20, 5000])
def test_a_number_that_no_counter_has_is_no_total(digits: int) -> None:
    line = LINES[0].format(0, "TX", 1, 0, 1, 0, 1, "9" * digits, 64)
    assert parse_moongen_output(line).sent is None


@settings(max_examples=examples(250))
@given(st.one_of(st.binary(max_size=40), st.lists(st.tuples(number, number), max_size=4).map(
    lambda rows: "".join(f"{left},{right}\n" for left, right in rows).encode()
)))  # fmt: skip
def test_any_bytes_are_a_histogram_or_an_error_that_names_the_file(content: bytes) -> None:
    for parse in (parse_histogram, parse_guest_latencies):
        try:
            parse(content, str(Path("/there/h.csv")))
        except ResultsError as error:
            assert "/there/h.csv" in str(error)
