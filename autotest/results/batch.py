"""Many histograms at once: what figures need of each, in a few array operations for all.

One histogram of some thousand lines is short for numpy: calling it costs as much as what it does. Percentiles are the same
nearest ranks as :meth:`Histogram.percentiles` gives, by whole numbers. Mean and standard deviation differ in rounding at most,
and do not depend on which other histograms are in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from autotest.results.figures import PERCENTILES
from autotest.results.histogram import Summary
from autotest.results.pairs import parse_pairs

BATCH_BYTES: Final = 400_000
"""So much text at once, by measurement: with less, the calls take longer than what they do, with more, memory does."""

_MAX_SAMPLES: Final = 2**46  # in a batch: ranks are computed in thousandths of a percent, with 64 bits
_THOUSANDTHS: Final = np.array([round(percent * 1000) for percent in PERCENTILES], np.int64)


def summarise(contents: Sequence[bytes]) -> list[Summary | None]:
    """One summary for the content of each histogram file; None for one that is empty, malformed or cut off.

    What is wrong with those :func:`~autotest.results.histogram.parse_histogram` says.
    """
    whole = [content.endswith(b"\n") for content in contents]
    found = iter(_summarise([content for content, is_whole in zip(contents, whole, strict=True) if is_whole]))
    return [next(found) if is_whole else None for is_whole in whole]


def _summarise(contents: list[bytes]) -> list[Summary | None]:
    """The same of files that end with a newline. Where one is wrong, halves are tried until it stands alone."""
    if not contents:
        return []
    summaries = _summaries(contents)
    if summaries is not None:
        return list(summaries)
    if len(contents) == 1:
        return [None]
    middle = len(contents) // 2
    return _summarise(contents[:middle]) + _summarise(contents[middle:])


def _summaries(contents: list[bytes]) -> list[Summary] | None:
    """All summaries, or None where any line of any file is not as it should be, or the numbers are too large."""
    pairs = parse_pairs(b"".join(contents))
    if pairs is None:
        return None
    values, counts, newlines = pairs
    ends = np.searchsorted(newlines, np.cumsum([len(content) for content in contents]))
    starts = np.concatenate([[0], ends[:-1]])
    ascending = values[1:] > values[:-1]
    ascending[ends[:-1] - 1] = True  # from the last line of one file to the first of the next
    if not ascending.all() or counts.min() < 1 or int(counts.max()) * len(counts) > _MAX_SAMPLES:
        return None
    cumulated = np.cumsum(counts)
    before = cumulated[starts] - counts[starts]
    samples = cumulated[ends - 1] - before
    weights = counts.astype(float)
    deviations = values.astype(float)
    means = np.add.reduceat(deviations * weights, starts) / samples
    deviations -= np.repeat(means, ends - starts)
    deviations *= deviations
    deviations *= weights
    stds = np.sqrt(np.add.reduceat(deviations, starts) / np.maximum(samples - 1, 1))
    ranks = np.maximum(1, -(-_THOUSANDTHS * samples[:, None] // 100_000)) + before[:, None]
    quantiles = values[np.searchsorted(cumulated, ranks)]
    columns = (samples, means, stds, values[ends - 1], quantiles)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Summary(count, mean, std, most, tuple(points)) for count, mean, std, most, points in rows]
