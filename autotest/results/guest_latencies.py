"""The histograms of several guests in one file: ``guest,nanoseconds,count`` per line, ascending, no header.

A guest is its number, from 1. Guests of which no sample came back have no line, so the file may be empty. Like a histogram's,
the last line ends with a newline; without it the file was cut off. Read and written in a few array operations, as
:mod:`~autotest.results.histogram` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from autotest.errors import ResultsError
from autotest.results.histogram import Histogram, format_rows, shown_line
from autotest.results.pairs import MAX_DIGITS, parse_triples


def parse_guest_latencies(data: bytes, source: str) -> dict[int, Histogram]:
    """Histograms by guest, ascending, from the content of a file, which ``source`` names in errors.

    Raises:
        ResultsError: the content is cut off, malformed or not ascending, with the line.
    """
    if not data:
        return {}
    if data[-1:] != b"\n":
        raise ResultsError(f"{source}:{data.count(10) + 1}: the last line is cut off")
    triples = parse_triples(data)
    if triples is None:
        raise _first_error(data, source)
    guests, values, counts = triples
    is_next = guests[1:] > guests[:-1]
    ascending = is_next | ((guests[1:] == guests[:-1]) & (values[1:] > values[:-1]))
    if not (ascending.all() and guests[0] > 0 and counts.min() > 0):
        raise _first_error(data, source)
    starts = np.flatnonzero(np.concatenate([[True], is_next]))
    parts = zip(np.split(values, starts[1:]), np.split(counts, starts[1:]), strict=True)
    return {int(guest): Histogram(*part) for guest, part in zip(guests[starts], parts, strict=True)}


def _first_error(data: bytes, source: str) -> ResultsError:
    """The first thing wrong, found line by line: only for files that are known to be wrong."""
    before = (0, -1)
    for number, line in enumerate(data[:-1].split(b"\n"), 1):
        fields = line.split(b",")
        if len(fields) != 3 or not all(field.isdigit() and len(field) <= MAX_DIGITS for field in fields):
            return ResultsError(f"{source}:{number}: {shown_line(line)} is not 'guest,nanoseconds,count'")
        guest, value, count = map(int, fields)
        if guest == 0:
            return ResultsError(f"{source}:{number}: guests are numbered from 1")
        if (guest, value) <= before:
            after = f"after guest {before[0]}, {before[1]} ns"
            return ResultsError(f"{source}:{number}: guest {guest}, {value} ns {after}: not ascending")
        if count == 0:
            return ResultsError(f"{source}:{number}: the count is 0")
        before = (guest, value)
    return ResultsError(f"{source}: not the histograms of guests")


def format_guest_latencies(histograms: Mapping[int, Histogram]) -> bytes:
    """The content of such a file."""
    there = [(guest, histograms[guest]) for guest in sorted(histograms) if len(histograms[guest].values)]
    if not there:
        return b""
    guests = np.repeat([guest for guest, _ in there], [len(histogram.values) for _, histogram in there])
    values, counts = (np.concatenate([getattr(histogram, name) for _, histogram in there]) for name in ("values", "counts"))
    return format_rows(guests.astype(np.int64), values, counts)


def renumbered(histograms: Mapping[int, Histogram], numbers: Sequence[int]) -> dict[int, Histogram]:
    """The same by the numbers of the guests, from what the generator wrote by the places of its addresses, counted from 1.

    Raises:
        ResultsError: there are samples of a place at which there is no guest.
    """
    strangers = [place for place in histograms if place > len(numbers)]
    if strangers:
        raise ResultsError(f"the guests' histograms: samples of address {strangers[0]}, but there are {len(numbers)} addresses")
    return {numbers[place - 1]: histogram for place, histogram in histograms.items()}
