import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.histogram import (
    Histogram,
    format_histogram,
    parse_histogram,
    sum_histograms,
)

COUNTS = st.dictionaries(
    st.one_of(st.integers(0, 50), st.integers(0, 10**15 - 1)), st.one_of(st.integers(1, 99), st.integers(1, 10**12)), min_size=1
)
FEW = st.dictionaries(st.integers(0, 10**7), st.integers(1, 9), min_size=1, max_size=20)


def plain(counts):
    return "".join(f"{value},{counts[value]}\n" for value in sorted(counts)).encode()


@given(COUNTS)
def test_what_is_written_is_what_a_plain_loop_writes_and_is_read_back(counts):
    assert format_histogram(Histogram.of(counts)) == plain(counts)
    assert parse_histogram(plain(counts), "x") == Histogram.of(counts)


@given(st.lists(FEW, max_size=4))
def test_a_sum_holds_every_sample_once(parts):
    total = {}
    for counts in parts:
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    assert sum_histograms(map(Histogram.of, parts)) == Histogram.of(total)


@given(FEW, st.integers(1, 100))
def test_percentiles_are_nearest_rank(counts, percent):
    samples = sorted(value for value, count in counts.items() for _ in range(count))
    rank = -(-percent * len(samples) // 100)
    assert Histogram.of(counts).percentile(percent) == samples[rank - 1]
    assert Histogram.of(counts).percentile(0) == samples[0]
    assert Histogram.of(counts).mean == pytest.approx(statistics.mean(samples))
    if len(samples) > 1:
        assert Histogram.of(counts).std == pytest.approx(statistics.stdev(samples), rel=1e-9, abs=1e-6)


def test_99_9_percent_of_a_thousand_samples_is_the_999th():
    assert Histogram.of(dict.fromkeys(range(1, 1001), 1)).percentile(99.9) == 999


@given(FEW, st.data())
def test_a_file_that_was_cut_off_within_a_line_is_refused(counts, data):
    content = plain(counts)
    cut = data.draw(st.integers(1, len(content) - 1))
    if content[cut - 1 : cut] != b"\n":
        with pytest.raises(ResultsError, match=rf"^x.csv:{content[:cut].count(10) + 1}: the last line is cut off"):
            parse_histogram(content[:cut], "x.csv")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"1,2\n1,3\n", 2),
        (b"5,2\n1,3\n", 2),
        (b"1,2\n3,0\n", 2),
        (b"1,2\n\n", 2),
        (b"1,2\nx,1\n", 2),
        (b"1,2,3\n", 1),
        (b"1\n2,3\n4\n", 1),
        (b"-1,2\n", 1),
        (b"1.5,2\n", 1),
        (b"1,2\r\n", 1),
        (b"1,2\n3,\n", 2),
        (b"1,2\n\0\0\0\n", 2),
        (b"1" * 16 + b",1\n", 1),
    ],
)
def test_a_malformed_file_is_refused_with_file_and_line(content, line):
    with pytest.raises(ResultsError, match=rf"^f\.csv:{line}: "):
        parse_histogram(content, "f.csv")


def test_an_empty_file_is_refused_unless_asked_for():
    with pytest.raises(ResultsError, match="h.csv: the histogram is empty"):
        parse_histogram(b"", "h.csv")
    empty = parse_histogram(b"", "h.csv", allow_empty=True)
    assert (empty.samples, empty.max, empty.percentile(50), empty.summary([50])) == (0, None, None, None)
    assert np.isnan(empty.mean) and np.isnan(empty.std) and format_histogram(empty) == b""
