import math
import statistics
import tracemalloc
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.histogram import (
    Histogram,
    Summary,
    format_histogram,
    format_rows,
    parse_histogram,
    shown_line,
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


# -- each limit, from both sides -----------------------------------------------------------------------------


@pytest.mark.parametrize("percent", [-100, -1, -0.001, 100.001, 101, 1000, math.nan])
def test_what_is_no_percentage_is_refused(percent):
    for ask in (Histogram.of({5: 1}).percentile, lambda value: Histogram.of({5: 1}).summary([50, value])):
        with pytest.raises(ValueError, match=f"^{percent} is not a percentage$"):
            ask(percent)


@pytest.mark.parametrize(
    ("percent", "expected"),
    [(0, 1), (0.001, 1), (10, 1), (10.001, 2), (20, 2), (50, 5), (50.1, 6), (90, 9), (90.001, 10), (99.999, 10), (100, 10)],
)
def test_a_percentile_is_the_smallest_sample_that_so_many_do_not_exceed(percent, expected):
    assert Histogram.of(dict.fromkeys(range(1, 11), 1)).percentile(percent) == expected
    assert Histogram.of(dict.fromkeys(range(1, 11), 7)).percentile(percent) == expected
    assert Histogram.of({42: 1}).percentile(percent) == 42


def test_percentiles_come_in_the_order_in_which_they_are_asked_for():
    histogram = Histogram.of({5: 1, 7: 2, 9: 1})
    assert histogram.percentiles([100, 0, 50, 75, 76]) == [9, 5, 7, 7, 9]
    assert histogram.percentiles([]) == []
    assert Histogram.of({}).percentiles([1, 2]) == [None, None]
    summary = histogram.summary([100, 0])
    assert summary.percentiles == (9, 5) and all(type(value) is int for value in summary.percentiles)


def test_the_figures_of_a_histogram_are_those_of_its_samples():
    histogram = Histogram.of({30: 1, 10: 2, 20: 3})
    samples = [10, 10, 20, 20, 20, 30]
    assert (histogram.samples, histogram.max, histogram.mean) == (6, 30, statistics.mean(samples))
    assert histogram.std == pytest.approx(statistics.stdev(samples), rel=1e-12)
    assert histogram.summary([50]) == Summary(6, statistics.mean(samples), pytest.approx(statistics.stdev(samples)), 30, (20,))
    assert [type(value) for value in (histogram.samples, histogram.max, histogram.mean, histogram.std)] == [
        int,
        int,
        float,
        float,
    ]


@pytest.mark.parametrize(("counts", "std"), [({7: 1}, 0.0), ({7: 2}, 0.0), ({7: 1, 9: 1}, math.sqrt(2)), ({0: 1}, 0.0)])
def test_one_sample_has_no_deviation_and_two_have(counts, std):
    assert Histogram.of(counts).std == pytest.approx(std)


def test_histograms_are_alike_where_values_and_counts_are():
    assert Histogram.of({1: 2, 3: 4}) == Histogram.of({3: 4, 1: 2})
    for other in ({1: 2, 3: 5}, {1: 2, 4: 4}, {1: 2}, {}):
        assert Histogram.of({1: 2, 3: 4}) != Histogram.of(other)
    assert Histogram.of({}) != {} and Histogram.of({1: 2}) != "x"
    with pytest.raises(TypeError, match="unhashable"):
        hash(Histogram.of({}))


def test_histograms_and_summaries_are_not_changed_by_anybody():
    for what, name in ((Histogram.of({1: 1}), "values"), (Histogram.of({1: 1}).summary([]), "mean")):
        with pytest.raises(FrozenInstanceError):
            setattr(what, name, None)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"1,2\n1,3\n", "2: 1 ns after 1 ns: not ascending"),
        (b"5,2\n1,3\n", "2: 1 ns after 5 ns: not ascending"),
        (b"0,1\n2,1\n1,1\n", "3: 1 ns after 2 ns: not ascending"),
        (b"1,2\n3,0\n", "2: the count is 0"),
        (b"0,0\n", "1: the count is 0"),
        (b"x,1\n", "1: 'x,1' is not 'nanoseconds,count'"),
        (b"1,2\n,1\n", "2: ',1' is not 'nanoseconds,count'"),
        (b"1,2,3\n", "1: '1,2,3' is not 'nanoseconds,count'"),
        (b"1\n", "1: '1' is not 'nanoseconds,count'"),
        (b"1,2\r\n", "1: '1,2\\r' is not 'nanoseconds,count'"),
        (b"1,2\n\n3,4\n", "2: '' is not 'nanoseconds,count'"),
        (b"1,2\n\n", "2: '' is not 'nanoseconds,count'"),
        (b"1,2", "1: the last line is cut off"),
        (b"1,2\n3,4\n5,6", "3: the last line is cut off"),
        (b"1000000000000000,1\n", "1: '1000000000000000,1' is not 'nanoseconds,count'"),
        (b"1,1000000000000000\n", "1: '1,1000000000000000' is not 'nanoseconds,count'"),
    ],
)
def test_the_first_thing_that_is_wrong_with_a_file_is_said_in_full(content, says):
    with pytest.raises(ResultsError) as raised:
        parse_histogram(content, "a/h.csv")
    assert str(raised.value) == f"a/h.csv:{says}"


def test_the_smallest_and_the_largest_numbers_of_a_file_are_read():
    largest = 10**15 - 1
    assert parse_histogram(f"0,1\n1,{largest}\n{largest},1\n".encode(), "x") == Histogram.of({0: 1, 1: largest, largest: 1})
    for allow_empty in (True, False):
        assert parse_histogram(b"0,1\n", "x", allow_empty=allow_empty) == Histogram.of({0: 1})


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"", "''"),
        (b"x" * 39, f"'{'x' * 39}'"),
        (b"x" * 40, f"'{'x' * 40}'"),
        (b"x" * 41, f"'{'x' * 37}...'"),
        (b"abcdefghij" * 100, "'abcdefghijabcdefghijabcdefghijabcdefg...'"),
        (b"a\xff\n", r"'a\\xff\n'"),
        ("é".encode() * 40, f"'{'é' * 40}'"),
    ],
)
def test_of_a_long_line_the_beginning_is_shown(line, shown):
    assert shown_line(line) == shown


def added(*parts):
    total = {}
    for counts in parts:
        for value, count in counts.items():
            total[value] = total.get(value, 0) + count
    return total


@pytest.mark.parametrize("first", [0, 1, 5000])
@pytest.mark.parametrize("span", [2, 31, 32, 63, 64, 65, 66, 100, 1000, 10**6])
def test_a_sum_is_the_same_whether_values_lie_close_together_or_far_apart(first, span):
    """Four entries of two histograms over so many nanoseconds: up to 64 they are summed in another way than beyond."""
    parts = {first: 3, first + span - 1: 4}, {first: 5, first + span // 2: 6}
    assert sum_histograms(map(Histogram.of, parts)) == Histogram.of(added(*parts))
    assert sum_histograms(map(Histogram.of, reversed(parts))) == Histogram.of(added(*parts))


@pytest.mark.parametrize("step", [10**4, 10**11])
def test_values_that_lie_far_apart_take_no_memory_for_what_is_between_them(step):
    parts = [{number * step + more: number + 1 for number in range(1000)} for more in (0, 1)]
    histograms = [Histogram.of(counts) for counts in parts]
    tracemalloc.start()
    try:
        found = sum_histograms(histograms)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
    assert found == Histogram.of(added(*parts))


def test_a_sum_of_none_is_empty_and_of_one_is_that_one():
    one = Histogram.of({5: 1})
    assert sum_histograms([]) == sum_histograms([Histogram.of({})]) == Histogram.of({})
    assert sum_histograms([one]) is one and sum_histograms([Histogram.of({}), one, Histogram.of({})]) is one
    assert sum_histograms([one, one]) == Histogram.of({5: 2})
    assert sum_histograms([one, Histogram.of({6: 1}), Histogram.of({5: 10**15})]) == Histogram.of({5: 10**15 + 1, 6: 1})


#: Where digits become more, and where numbers no longer fit into 32 bits.
EDGES = sorted(
    {10**power + more for power in range(16) for more in (-1, 0, 1)} | {2**32 + more for more in (-2, -1, 0, 1)} | {2**53}
)


@pytest.mark.parametrize("number", EDGES)
def test_a_number_is_written_with_all_its_digits(number):
    assert format_rows(np.array([number])) == f"{number}\n".encode()
    assert format_rows(np.array([number, 0, 7]), np.array([1, 2, number])) == f"{number},1\n0,2\n7,{number}\n".encode()
    assert format_rows(np.array([12_345_678_901, number])) == f"12345678901\n{number}\n".encode()


def test_rows_have_as_many_numbers_as_there_are_columns_and_there_may_be_none():
    columns = [np.array([number, 20_000 + number, 300_000_000]) for number in range(3)]
    assert format_rows(*columns) == b"0,1,2\n20000,20001,20002\n300000000,300000000,300000000\n"
    assert format_rows(np.empty(0, np.int64), np.empty(0, np.int64)) == b""


def test_what_is_written_is_left_as_it_was():
    histogram = Histogram.of({2**32 + 10: 1, 5: 10_000})
    format_histogram(histogram)
    assert histogram == Histogram.of({5: 10_000, 2**32 + 10: 1})
    histogram.summary([50])
    assert histogram == Histogram.of({5: 10_000, 2**32 + 10: 1})


def test_that_a_file_may_be_empty_is_said_by_name():
    with pytest.raises(TypeError):
        parse_histogram(b"", "h.csv", True)
