"""Statistics over repetitions: each repetition is one observation, however many samples it holds.

The samples within one trial depend on each other (the same boot, the same queue), so their number says nothing about
how well a figure is known; only the spread between repetitions does.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Estimate:
    """A figure over repetitions.

    Attributes:
        mean: over the repetitions.
        low, high: the confidence interval of that mean; None for a single repetition, which has none.
        repetitions: how many there are.
        pooled: for a share, all that was counted together over all it was counted of; else None.
    """

    mean: float
    low: float | None
    high: float | None
    repetitions: int
    pooled: float | None = None


def estimate(values: Sequence[float], pooled: float | None = None, confidence: float = CONFIDENCE) -> Estimate:
    """Mean and confidence interval by Student's t: mean +- t(n-1) * s / sqrt(n), s with n - 1.

    Source: Student, "The Probable Error of a Mean", Biometrika 6 (1908). ValueError without values.
    """
    count = len(values)
    if not count:
        raise ValueError("no values")
    mean = math.fsum(values) / count
    if count == 1:
        return Estimate(mean, None, None, 1, pooled)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    reach = _student_t(count - 1, confidence) * deviation / math.sqrt(count)
    return Estimate(mean, mean - reach, mean + reach, count, pooled)


def _student_t(degrees: int, confidence: float) -> float:
    """The two-sided quantile of Student's t."""
    from scipy.special import stdtrit  # 0.1 s to import, scipy.stats is 1 s

    return float(stdtrit(degrees, (1 + confidence) / 2))


class RankTest(NamedTuple):
    """What a rank test says.

    Attributes:
        p: two-sided; 1 where all values are equal.
        smallest: the smallest p that these values could have given, however they were divided between the two groups.
    """

    p: float
    smallest: float


def rank_test(first: Sequence[float], second: Sequence[float]) -> RankTest:
    """The exact two-sided Mann-Whitney (Wilcoxon rank sum) test: it supposes no distribution.

    p is the share of all divisions of the values at hand into groups of these sizes whose rank sum lies at least as far
    from its expectation as the observed one. Ties get mid-ranks and keep p exact (scipy's exact method supposes that there
    are none). Beyond 60 values in all the normal approximation with its correction for ties takes over.

    Sources: Mann and Whitney, "On a Test of Whether one of Two Random Variables is Stochastically Larger than the
    Other", Annals of Mathematical Statistics 18 (1947); the shift algorithm that counts the divisions: Streitberg and
    Röhmel, "Exact Distributions for Permutation and Rank Tests", Statistical Software Newsletter 12 (1986).
    ValueError where a group is empty.
    """
    if not first or not second:
        raise ValueError("no values")
    ranks = _doubled_ranks([*first, *second])
    size, everything = len(first), len(ranks)
    observed = abs(sum(ranks[:size]) - size * (everything + 1))
    if everything > _MOST_EXACT:
        return _approximate_rank_test(ranks, size, observed)
    farness, share = _rank_sums(tuple(sorted(ranks)), size)
    p, smallest = share[farness >= observed].sum(), share[farness == farness.max()].sum()
    return RankTest(min(1.0, float(p)), min(1.0, float(smallest)))


_MOST_EXACT: Final = 60


def _doubled_ranks(values: Sequence[float]) -> list[int]:
    """Twice the mid-rank of each value, so that they are whole numbers; they sum up to n (n + 1)."""
    order = sorted(values)
    return [bisect_left(order, value) + bisect_right(order, value) + 1 for value in values]


@lru_cache(maxsize=256)
def _rank_sums(ranks: tuple[int, ...], size: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Every doubled rank sum that ``size`` of the ranks can have: how far it is from the expectation, and its share."""
    import numpy as np

    ways = np.zeros((size + 1, sum(ranks[-size:]) + 1))
    ways[0, 0] = 1
    for rank in ranks:
        ways[1:, rank:] += ways[:-1, : ways.shape[1] - rank].copy()
    sums = np.flatnonzero(ways[size])
    return np.abs(sums - size * (len(ranks) + 1)), ways[size, sums] / math.comb(len(ranks), size)


def _approximate_rank_test(ranks: Sequence[int], size: int, observed: int) -> RankTest:
    count = len(ranks)
    ties = sum(number**3 - number for number in Counter(ranks).values())
    variance = size * (count - size) / 12 * (count + 1 - ties / (count * (count - 1)))

    def p(farness: float) -> float:  # of a doubled rank sum; 1 of it is the correction for continuity
        return math.erfc(max(farness - 1, 0) / 2 / math.sqrt(2 * variance)) if variance > 0 else 1.0

    order = sorted(ranks)
    expected = size * (count + 1)
    return RankTest(p(observed), p(max(expected - sum(order[:size]), sum(order[-size:]) - expected)))


def smallest_p(first: int, second: int) -> float:
    """The smallest p of :func:`rank_test` with so many values in each group, all different: 2 / C(n + m, n)."""
    return min(1.0, 2 / math.comb(first + second, first)) if first and second else 1.0


def repetitions_needed(comparisons: int, alpha: float) -> int:
    """Fewest repetitions in each of the two groups with which one of so many comparisons alone can come out, corrected."""
    return next(count for count in range(2, 1000) if smallest_p(count, count) * comparisons < alpha)


def cliffs_delta(first: Sequence[float], second: Sequence[float]) -> float:
    """Effect size from -1 to 1: the share of pairs in which the second group's value is larger, less that where it is smaller.

    Source: Cliff, "Dominance Statistics: Ordinal Analyses to Answer Ordinal Questions", Psychological Bulletin 114
    (1993).

    >>> cliffs_delta([1, 2, 3], [4, 5, 6]), cliffs_delta([1, 2], [2, 1])
    (1.0, 0.0)
    """
    signs = sum((right > left) - (right < left) for left in first for right in second)
    return signs / (len(first) * len(second))


class Corrected(NamedTuple):
    """What :func:`correct` gives.

    Attributes:
        p: of each test, corrected for all that were made; None for one that could not fall below alpha once corrected.
        limit: a test whose smallest possible p is not below this could not.
    """

    p: list[float | None]
    limit: float


def correct(tests: Sequence[RankTest], alpha: float) -> Corrected:
    """Correct for the number of tests made.

    Holm's step-down method: whatever the dependence between the tests (loss and latency of one trial hang together),
    the chance that any true "no difference" is rejected stays below alpha. Before, Tarone's method leaves those tests
    out of the count whose smallest possible p is too large for any rejection: what cannot come out cannot come out
    falsely. (Loss that is 0 everywhere costs the other comparisons nothing.)

    Sources: Holm, "A Simple Sequentially Rejective Multiple Test Procedure", Scandinavian Journal of Statistics 6
    (1979); Tarone, "A Modified Bonferroni Method for Discrete Data", Biometrics 46 (1990).
    """
    smallest = sorted(test.smallest for test in tests)
    factor = next(count for count in range(1, len(tests) + 2) if bisect_left(smallest, alpha / count) <= count)
    limit = alpha / factor
    able = [number for number, test in enumerate(tests) if test.smallest < limit]
    corrected: list[float | None] = [None] * len(tests)
    largest = 0.0
    for place, number in enumerate(sorted(able, key=lambda number: tests[number].p)):
        largest = max(largest, min(1.0, tests[number].p * (len(able) - place)))
        corrected[number] = largest
    return Corrected(corrected, limit)


FEWEST_FOR_INTERVAL: Final = 3
_RESAMPLES: Final = 4999


def difference_interval(
    first: Sequence[float], second: Sequence[float], confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """The confidence interval of mean(second) - mean(first), by the symmetric bootstrap-t over repetitions.

    Each group is resampled by itself; the interval reaches so many standard errors to either side as 95 % of the resamples'
    differences lie away from the observed one, each by its own standard error. The result is the same for the same values.
    None where it cannot be told: fewer than three repetitions on a side, or (nearly) all values the same.

    How often it covers the true difference with 3 to 20 repetitions, in 1,500 simulated comparisons each: normal values 95 to
    98 %, with three times the scatter on one side 95 to 99 %, skewed (lognormal) 96 to 99 %, with an outlier in ten 98 to 99 %,
    strongly skewed on one side only 86 to 92 %. The plain percentile interval covers 82 % with 3 and 90 % with 8 normal values.

    Sources: Efron and Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 12; Hall, "On Symmetric Bootstrap
    Confidence Intervals", Journal of the Royal Statistical Society B 50 (1988); for the percentile interval: Hesterberg,
    "What Teachers Should Know About the Bootstrap", The American Statistician 69 (2015).
    """
    import numpy as np

    if min(len(first), len(second)) < FEWEST_FOR_INTERVAL:
        return None
    difference = math.fsum(second) / len(second) - math.fsum(first) / len(first)
    moved_first, variance_first = _resampled(first, 0)
    moved_second, variance_second = _resampled(second, 1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = np.abs(moved_second - moved_first) / np.sqrt(variance_first + variance_second)
    ratios[np.isnan(ratios)] = 0  # a resample without any spread that did not move either
    errors = float(np.quantile(ratios, confidence, method="inverted_cdf"))
    reach = errors * math.sqrt(_error_squared(first) + _error_squared(second))
    return (difference - reach, difference + reach) if 0 < reach < math.inf else None


def _error_squared(values: Sequence[float]) -> float:
    """The squared standard error of their mean."""
    mean = math.fsum(values) / len(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)


def _resampled(values: Sequence[float], seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each resample how far its mean moved, and its mean's squared standard error."""
    import numpy as np

    count = len(values)
    weights = _weights(count, seed)
    centred = np.asarray(values, float) - math.fsum(values) / count
    moved = weights @ centred / count
    variance = np.maximum(weights @ centred**2 - count * moved**2, 0)
    variance[variance <= 1e-12 * (centred**2).max()] = 0  # what rounding leaves of a resample of one value only
    return moved, variance / (count - 1) / count


@lru_cache(maxsize=64)
def _weights(count: int, seed: int) -> NDArray[np.float64]:
    """Of each resample how often it holds each value: (resamples, count)."""
    import numpy as np

    generator = np.random.default_rng([seed, count])
    return generator.multinomial(count, np.full(count, 1 / count), size=_RESAMPLES).astype(float)
