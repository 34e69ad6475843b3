"""The numbers of ``a,b`` and ``a,b,c`` lines, as histograms have them, in a few array operations for a whole text.

Where the commas and line breaks are says how many digits each number has. For every place of the text, the number that its next
two and four digits make is computed, whether anybody wants it or not: these are narrow arrays, where a processor does many
elements at once. A number of five digits is then one of these four-digit groups and one digit. ``benchmarks/accumulate.py`` and
``benchmarks/report.py`` compare it with plain loops.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

#: Longest number that is read; 10**15 ns are 11 days.
MAX_DIGITS: Final = 15
_ZERO, _NINE = b"09"
_PADDING: Final = 4  # digits in front of the text, so that four are before each place


class Pairs(NamedTuple):
    """Both numbers of all lines, and where in the text each line ends; arrays of one length."""

    values: Ints
    counts: Ints
    newlines: Ints


class _Groups(NamedTuple):
    """For each place of a text, the number made of the one, two and four digits before it, if they are digits."""

    ones: NDArray[np.uint8]
    twos: NDArray[np.uint8]
    fours: NDArray[np.uint16]


def parse_pairs(text: bytes) -> Pairs | None:
    """The numbers of a text that ends with a newline, or None when any line is malformed."""
    found = _parse(text, 2)
    return Pairs(*found) if found else None


def parse_triples(text: bytes) -> tuple[Ints, Ints, Ints] | None:
    """The same of lines of three numbers, without where the lines end."""
    found = _parse(text, 3)
    return (found[0], found[1], found[2]) if found else None


def _parse(text: bytes, columns: int) -> list[Ints] | None:
    """The numbers of each column, and at last where the lines end."""
    padded = np.frombuffer(b"0" * _PADDING + text, np.uint8)
    characters = padded[_PADDING:]
    ends = np.flatnonzero(characters < _ZERO)
    rows, rest = divmod(len(ends), columns)
    if rest or int(characters.max()) > _NINE:
        return None
    if characters.take(ends).tobytes() != (b"," * (columns - 1) + b"\n") * rows:
        return None
    places = [*ends.reshape(-1, columns).T.copy()]
    groups = _groups(padded)
    before = np.empty_like(places[0])
    before[0] = -1
    before[1:] = places[-1][:-1]
    found = []
    for place in places:
        numbers = _numbers(groups, place, place - before)
        if numbers is None:
            return None
        found.append(numbers)
        before = place
    return [*found, places[-1]]


def _groups(padded: NDArray[np.uint8]) -> _Groups:
    ones = padded & np.uint8(0x0F)
    twos = ones[:-1] * np.uint8(10)
    twos += ones[1:]
    fours = twos[:-2].astype(np.uint16)
    fours *= np.uint16(100)
    fours += twos[2:]
    return _Groups(ones[_PADDING - 1 :], twos[_PADDING - 2 :], fours[_PADDING - 4 :])


def _numbers(groups: _Groups, ends: Ints, distances: Ints) -> Ints | None:
    """The numbers that end before ``ends``, that far behind the character before them; None when a length cannot be."""
    shortest, longest = int(distances.min()) - 1, int(distances.max()) - 1
    if shortest < 1 or longest > MAX_DIGITS:
        return None
    numbers = _of_one_length(groups, ends, shortest)
    for length in range(shortest + 1, longest + 1):
        which = np.flatnonzero(distances == length + 1)
        if len(which):
            numbers[which] = _of_one_length(groups, ends.take(which), length)
    return numbers


def _of_one_length(groups: _Groups, ends: Ints, length: int) -> Ints:
    """Numbers of so many digits, from their last four digits to their first."""
    numbers: Ints | None = None
    place = 0
    while place < length:
        size = 4 if length - place >= 4 else 2 if length - place >= 2 else 1
        group = groups.fours if size == 4 else groups.twos if size == 2 else groups.ones
        part = group.take(ends - place if place else ends).astype(np.int64)
        if numbers is None:
            numbers = part
        else:
            part *= 10**place
            numbers += part
        place += size
    assert numbers is not None
    return numbers
