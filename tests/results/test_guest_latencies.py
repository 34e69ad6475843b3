import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.guest_latencies import (
    format_guest_latencies,
    parse_guest_latencies,
    renumbered,
)
from autotest.results.histogram import Histogram
from autotest.results.pairs import MAX_DIGITS, parse_triples

COUNTS = st.dictionaries(
    st.one_of(st.integers(0, 50), st.integers(0, 10**15 - 1)), st.integers(1, 10**12), min_size=1, max_size=20
)
GUESTS = st.dictionaries(st.one_of(st.integers(1, 5), st.integers(1, 10**6)), COUNTS, max_size=6)


def plain(guests):
    """What a plain loop writes."""
    return "".join(
        f"{guest},{value},{guests[guest][value]}\n" for guest in sorted(guests) for value in sorted(guests[guest])
    ).encode()


def of(guests):
    return {guest: Histogram.of(counts) for guest, counts in guests.items()}


@given(GUESTS)
def test_what_is_written_is_what_a_plain_loop_writes_and_is_read_back(guests):
    assert format_guest_latencies(of(guests)) == plain(guests)
    found = parse_guest_latencies(plain(guests), "x")
    assert found == of(guests) and list(found) == sorted(guests)


def test_guests_without_a_sample_have_no_line_and_without_any_the_file_is_empty():
    assert format_guest_latencies(of({1: {5: 1}, 2: {}, 3: {7: 2}})) == b"1,5,1\n3,7,2\n"
    assert format_guest_latencies({}) == format_guest_latencies({4: Histogram.of({})}) == b""
    assert parse_guest_latencies(b"", "x") == {}


@given(GUESTS.filter(bool), st.data())
def test_a_file_that_was_cut_off_within_a_line_is_refused(guests, data):
    content = plain(guests)
    cut = data.draw(st.integers(1, len(content) - 1))
    if content[cut - 1 : cut] != b"\n":
        with pytest.raises(ResultsError, match=rf"^g.csv:{content[:cut].count(10) + 1}: the last line is cut off"):
            parse_guest_latencies(content[:cut], "g.csv")


@pytest.mark.parametrize(
    ("content", "line", "says"),
    [
        (b"1,5,1\n1,5,1\n", 2, "guest 1, 5 ns after guest 1, 5 ns: not ascending"),
        (b"1,5,1\n1,4,1\n", 2, "not ascending"),
        (b"2,5,1\n1,9,1\n", 2, "guest 1, 9 ns after guest 2, 5 ns: not ascending"),
        (b"1,5,1\n2,5,1\n1,6,1\n", 3, "not ascending"),
        (b"0,5,1\n", 1, "numbered from 1"),
        (b"1,5,0\n", 1, "the count is 0"),
        (b"1,5\n", 1, "'1,5' is not 'guest,nanoseconds,count'"),
        (b"1,5\n1,5\n1,6\n", 1, "'1,5' is not"),
        (b"1,5,1,1\n", 1, "is not"),
        (b"1,5,1\n\n", 2, "'' is not"),
        (b"1,5,1\n-1,6,1\n", 2, "is not"),
        (b"1,5.5,1\n", 1, "is not"),
        (b"1,5,1\r\n", 1, "is not"),
        (b"guest,nanoseconds,count\n1,5,1\n", 1, "is not"),
        (b"1\n5,1,1,5\n1\n", 1, "'1' is not"),
        (b"1," + b"9" * (MAX_DIGITS + 1) + b",1\n", 1, "is not"),
        (b"1,,1\n", 1, "is not"),
        (b"1,5,1\n\0\0\0\n", 2, "is not"),
    ],
)
def test_a_malformed_file_is_refused_with_file_and_line(content, line, says):
    with pytest.raises(ResultsError, match=rf"^f\.csv:{line}: ") as raised:
        parse_guest_latencies(content, "f.csv")
    assert says in str(raised.value)


@given(st.lists(st.tuples(*[st.integers(0, 10**MAX_DIGITS - 1)] * 3), min_size=1, max_size=30))
def test_lines_of_three_numbers_are_read_as_they_are(rows):
    found = parse_triples("".join("{},{},{}\n".format(*row) for row in rows).encode())
    assert found is not None and list(zip(*(column.tolist() for column in found), strict=True)) == rows


def test_the_places_of_the_generators_addresses_become_the_numbers_of_the_guests():
    places = of({1: {5: 1}, 3: {7: 1}})
    assert renumbered(places, (1, 2, 4)) == of({1: {5: 1}, 4: {7: 1}})
    with pytest.raises(ResultsError, match="samples of address 3, but there are 2 addresses"):
        renumbered(places, (1, 2))


def test_a_large_file_is_read_and_written_faster_than_a_loop_reads_it():
    guests = {guest: dict.fromkeys(range(8000, 8000 + 20_000), 3) for guest in range(1, 17)}
    content = plain(guests)
    histograms = of(guests)
    start = time.process_time()
    assert parse_guest_latencies(content, "x").keys() == guests.keys()
    assert len(format_guest_latencies(histograms)) == len(content)
    ours = time.process_time() - start
    assert len([tuple(map(int, line.split(b","))) for line in content.splitlines()]) == 320_000
    assert ours < time.process_time() - start - ours
