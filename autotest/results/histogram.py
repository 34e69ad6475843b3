"""Latency histograms: ``nanoseconds,count`` per line, ascending, no header, every line ended by a newline.

Both MoonGen's ``hist:save`` and this module write the last newline too, so a file without it was cut off, even where
its last line still reads like numbers: ``7104,12`` may have been ``7104,1234``.

Reading (:mod:`~autotest.results.pairs`) and writing take a few array operations for a whole file.
``benchmarks/accumulate.py`` compares them with a plain loop.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from autotest.errors import ResultsError
from autotest.results.pairs import MAX_DIGITS, Ints, parse_pairs

_NEWLINE, _ZERO = b"\n0"
#: Up to this many possible values per entry, summing into a dense array is fastest.
_DENSE_SPAN: Final = 16


@dataclass(frozen=True, slots=True)
class Summary:
    """What figures need of a histogram with at least one sample, as :class:`Histogram` names it; in ns."""

    samples: int
    mean: float
    std: float
    max: int
    percentiles: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Histogram:
    """Latency samples: ``values`` in ns, strictly ascending, and how often each occurred; int64 arrays of one length."""

    values: Ints
    counts: Ints

    @classmethod
    def of(cls, counts: dict[int, int]) -> Histogram:
        """Histogram from a mapping of ns to count."""
        values = sorted(counts)
        return cls(np.array(values, np.int64), np.array([counts[value] for value in values], np.int64))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Histogram):
            return NotImplemented
        return np.array_equal(self.values, other.values) and np.array_equal(self.counts, other.counts)

    __hash__ = None  # type: ignore[assignment]  # holds arrays

    @property
    def samples(self) -> int:
        """Number of samples."""
        return int(self.counts.sum())

    @property
    def mean(self) -> float:
        """Arithmetic mean in ns; nan without samples."""
        summary = self.summary(())
        return summary.mean if summary else math.nan

    @property
    def std(self) -> float:
        """Standard deviation of the samples in ns, with n - 1 as MoonGen prints it; 0 for one sample, nan for none."""
        summary = self.summary(())
        return summary.std if summary else math.nan

    @property
    def max(self) -> int | None:
        """Largest sample in ns; None without samples."""
        return int(self.values[-1]) if len(self.values) else None

    def summary(self, percents: Sequence[float]) -> Summary | None:
        """All of the above, and percentiles as :meth:`percentiles` has them, at once; None without samples."""
        cumulated = np.cumsum(self.counts)
        if not len(cumulated):
            return None
        total = int(cumulated[-1])
        values, counts = self.values.astype(float), self.counts.astype(float)
        mean = float(values @ counts) / total
        values -= mean
        values *= values
        std = math.sqrt(float(values @ counts) / (total - 1)) if total > 1 else 0.0
        return Summary(total, mean, std, int(self.values[-1]), tuple(self._ranked(cumulated, percents)))

    def _ranked(self, cumulated: Ints, percents: Sequence[float]) -> list[int]:
        total = int(cumulated[-1])
        ranks = np.array([_rank(percent, total) for percent in percents], np.int64)
        found: list[int] = self.values.take(np.searchsorted(cumulated, ranks)).tolist()
        return found

    def percentiles(self, percents: Sequence[float]) -> list[int | None]:
        """Nearest-rank percentiles in ns; None for each without samples.

        The p-th percentile of n samples is the smallest sample that at least p percent of them do not exceed: the one
        with rank ceil(p/100 * n) when sorted, counted from 1 (rank 1 for p = 0). It is always a measured value.
        """
        cumulated = np.cumsum(self.counts)
        return [*self._ranked(cumulated, percents)] if len(cumulated) else [None] * len(percents)

    def percentile(self, percent: float) -> int | None:
        """One nearest-rank percentile in ns, see :meth:`percentiles`."""
        return self.percentiles([percent])[0]


def _rank(percent: float, total: int) -> int:
    if not 0 <= percent <= 100:
        raise ValueError(f"{percent} is not a percentage")
    # In thousandths of a percent and whole numbers: 99.9/100 * 1000 is 999.0000000000001 in floating point.
    return max(1, -(-round(percent * 1000) * total // 100_000))


def parse_histogram(data: bytes, source: str, *, allow_empty: bool = False) -> Histogram:
    """Histogram from the content of a file, which ``source`` names in errors.

    Raises:
        ResultsError: the content is cut off, malformed or not ascending, with the line; or it is empty and must not be.
    """
    if not data:
        if allow_empty:
            return Histogram(np.empty(0, np.int64), np.empty(0, np.int64))
        raise ResultsError(f"{source}: the histogram is empty")
    if data[-1] != _NEWLINE:
        raise ResultsError(f"{source}:{data.count(10) + 1}: the last line is cut off")
    pairs = parse_pairs(data)
    if pairs is None:
        raise _first_error(data, source)
    values, counts, _ = pairs
    if not (np.all(values[1:] > values[:-1]) and counts.min() > 0):
        raise _first_error(data, source)
    return Histogram(values, counts)


def _first_error(data: bytes, source: str) -> ResultsError:
    """The first thing wrong, found line by line: only for files that are known to be wrong."""
    before = -1
    for number, line in enumerate(data[:-1].split(b"\n"), 1):
        fields = line.split(b",")
        if len(fields) != 2 or not all(field.isdigit() and len(field) <= MAX_DIGITS for field in fields):
            return ResultsError(f"{source}:{number}: {shown_line(line)} is not 'nanoseconds,count'")
        value, count = map(int, fields)
        if value <= before:
            return ResultsError(f"{source}:{number}: {value} ns after {before} ns: not ascending")
        if count == 0:
            return ResultsError(f"{source}:{number}: the count is 0")
        before = value
    return ResultsError(f"{source}: not a histogram")


def shown_line(line: bytes) -> str:
    """The beginning of a line, for an error."""
    text = line.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def sum_histograms(histograms: Iterable[Histogram]) -> Histogram:
    """The histogram of all samples together; empty for none."""
    parts = [histogram for histogram in histograms if len(histogram.values)]
    if len(parts) < 2:
        return parts[0] if parts else Histogram.of({})
    low = min(int(part.values[0]) for part in parts)
    span = max(int(part.values[-1]) for part in parts) - low + 1
    entries = sum(len(part.values) for part in parts)
    if span <= entries * _DENSE_SPAN:
        dense = np.zeros(span, np.int64)
        for part in parts:
            dense[part.values - low] += part.counts
        offsets = np.flatnonzero(dense.astype(bool))  # finds them twice as fast as among numbers
        return Histogram(offsets + low, dense.take(offsets))
    values = np.concatenate([part.values for part in parts])
    order = np.argsort(values, kind="stable")
    values = values[order]
    firsts = np.flatnonzero(np.diff(values, prepend=-1))
    return Histogram(values[firsts], np.add.reduceat(np.concatenate([part.counts for part in parts])[order], firsts))


def format_histogram(histogram: Histogram) -> bytes:
    """The content of a histogram file."""
    return format_rows(histogram.values, histogram.counts)


def format_rows(*columns: Ints) -> bytes:
    """Lines of numbers with commas between them; the columns are of one length."""
    if not len(columns[0]):
        return b""
    parts: list[Any] = []
    for numbers in columns:
        parts += [*_digit_groups(numbers), np.frombuffer(b",", np.uint8)[0]]
    parts[-1] = np.frombuffer(b"\n", np.uint8)[0]
    sizes = [part.itemsize for part in parts]
    offsets = [sum(sizes[:index]) for index in range(len(sizes))]
    names = [f"c{index}" for index in range(len(parts))]
    layout = np.dtype({"names": names, "formats": [part.dtype for part in parts], "offsets": offsets})
    buffer = bytearray(len(columns[0]) * layout.itemsize)
    rows = np.frombuffer(buffer, layout)
    for name, part in zip(names, parts, strict=True):
        rows[name] = part
    return bytes(buffer.translate(None, b"\0"))


def _digit_groups(numbers: Ints) -> list[NDArray[np.unsignedinteger[Any]]]:
    """Decimal digits, four to a 32-bit word, high word first (one byte if it has one digit), NUL for leading zeros."""
    table = _digit_table()
    groups: list[NDArray[np.unsignedinteger[Any]]] = []
    rest: NDArray[Any] = numbers.astype(np.uint32) if int(numbers.max()) < 2**32 else numbers  # 32 bits divide faster
    while True:
        if groups and int(rest.max()) < 10:
            return [np.where(rest > 0, rest + _ZERO, 0).astype(np.uint8), *groups]
        higher = rest // 10_000
        index = rest - higher * 10_000
        index += (higher > 0) * rest.dtype.type(_WITH_ZEROS)
        if groups:
            index[rest == 0] = _NOTHING
        groups.insert(0, table.take(index))
        if not higher.any():
            return groups
        rest = higher


_WITH_ZEROS: Final = 10_000
_NOTHING: Final = 20_000


@functools.cache
def _digit_table() -> NDArray[np.uint32]:
    """Four ASCII characters for 0 to 9999 without leading zeros, then the same with them, then none at all."""
    bare = (b"%d" % number for number in range(10_000))
    full = (b"%04d" % number for number in range(10_000))
    return np.frombuffer(b"".join(text.rjust(4, b"\0") for text in bare) + b"".join(full) + bytes(4), np.uint32)
