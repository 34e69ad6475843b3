import itertools
import math
import random
from dataclasses import FrozenInstanceError
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from autotest.results.statistics import (
    CONFIDENCE,
    FEWEST_FOR_INTERVAL,
    Corrected,
    Estimate,
    RankTest,
    cliffs_delta,
    correct,
    difference_interval,
    estimate,
    rank_test,
    repetitions_needed,
    smallest_p,
)

few_values = st.lists(st.sampled_from([0, 1, 2, 5.5, 9]), min_size=1, max_size=5)


# --- one group ---------------------------------------------------------------------------------------------------------


def test_the_interval_is_that_of_students_own_example():
    sleep = [1.2, 2.4, 1.3, 1.3, 0.0, 1.0, 1.8, 0.8, 4.6, 1.4]  # hours gained, Biometrika 6 (1908), p. 20
    found = estimate(sleep)
    assert found.mean == pytest.approx(1.58)
    assert (found.low, found.high) == (pytest.approx(0.7001142, abs=1e-6), pytest.approx(2.4598858, abs=1e-6))
    assert found.repetitions == 10 and found.pooled is None


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=20), st.sampled_from([0.8, 0.95, 0.99]))
def test_the_interval_is_the_one_that_scipy_gives(values, confidence):
    found = estimate(values, confidence=confidence)
    error = stats.sem(values)
    if error > 1e-9 * max(values):
        low, high = stats.t.interval(confidence, len(values) - 1, loc=sum(values) / len(values), scale=error)
        assert found.low == pytest.approx(low, rel=1e-6, abs=1e-6 * error)
        assert found.high == pytest.approx(high, rel=1e-6, abs=1e-6 * error)


def test_a_single_repetition_has_no_interval_and_none_has_no_mean():
    assert (estimate([3.0]).low, estimate([3.0]).high, estimate([3.0]).mean) == (None, None, 3.0)
    with pytest.raises(ValueError, match="no values"):
        estimate([])


@pytest.mark.parametrize("repetitions", [2, 3, 8])
def test_the_interval_covers_the_true_mean_in_95_of_100_campaigns(repetitions):
    chance = random.Random(repetitions)
    covered = sum(
        found.low <= 100 <= found.high
        for found in (estimate([chance.gauss(100, 5) for _ in range(repetitions)]) for _ in range(2000))
    )
    assert_share(covered, 2000, 0.95)


def assert_share(hits: int, tries: int, share: float) -> None:
    """Within what chance leaves of that share, but in one of 10,000 cases."""
    low, high = stats.binom.interval(0.9999, tries, share)
    assert low <= hits <= high, f"{hits} of {tries}"


# --- the rank test -----------------------------------------------------------------------------------------------------


def test_the_rank_test_gives_the_textbooks_p():
    # Hollander and Wolfe, "Nonparametric Statistical Methods" (1973), p. 69: permeability of the chorioamnion; one-sided 0.1272.
    at_term = [0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46]
    earlier = [1.15, 0.88, 0.90, 0.74, 1.21]
    assert rank_test(at_term, earlier).p == pytest.approx(2 * 0.1272, abs=1e-4)


@given(few_values, few_values)
def test_p_is_the_share_of_divisions_that_are_as_far_out_whatever_the_ties(first, second):
    ranks = stats.rankdata([*first, *second])
    expected = Fraction(len(first) * (len(ranks) + 1), 2)
    far = [abs(Fraction(sum(chosen)) - expected) for chosen in itertools.combinations(ranks, len(first))]
    observed = abs(Fraction(sum(ranks[: len(first)])) - expected)
    found = rank_test(first, second)
    assert found.p == pytest.approx(sum(value >= observed for value in far) / len(far))
    assert found.smallest == pytest.approx(far.count(max(far)) / len(far))


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=25, unique=True), st.data())
def test_without_ties_p_is_scipys_exact_one(values, data):
    size = data.draw(st.integers(1, len(values) - 1))
    exact = stats.mannwhitneyu(values[:size], values[size:], method="exact").pvalue
    assert rank_test(values[:size], values[size:]).p == pytest.approx(exact)


@given(few_values, few_values)
def test_p_does_not_depend_on_which_group_is_first_nor_on_the_unit(first, second):
    found = rank_test(first, second)
    assert rank_test(second, first) == pytest.approx(found)
    assert rank_test([-3 * value for value in first], [-3 * value for value in second]) == pytest.approx(found)


def test_equal_values_are_no_difference():
    assert rank_test([7.5] * 4, [7.5] * 9) == RankTest(1, 1)
    assert rank_test([7.5] * 40, [7.5] * 40) == RankTest(1, 1)


def test_many_values_take_the_normal_approximation_that_scipy_takes():
    chance = random.Random(1)
    first, second = [chance.randrange(20) for _ in range(40)], [chance.randrange(4, 24) for _ in range(35)]
    approximate = stats.mannwhitneyu(first, second, method="asymptotic").pvalue
    assert rank_test(first, second).p == pytest.approx(approximate)
    distinct = [[2 * value for value in range(31)], [2 * value + 1 for value in range(4, 35)]]
    assert rank_test(*distinct).p == pytest.approx(stats.mannwhitneyu(*distinct, method="exact").pvalue, rel=0.01)


def test_a_group_without_values_cannot_be_tested():
    with pytest.raises(ValueError, match="no values"):
        rank_test([], [1.0])


@pytest.mark.parametrize(("first", "second"), [(1, 1), (2, 2), (3, 3), (4, 4), (3, 8), (10, 10)])
def test_the_smallest_p_is_that_of_groups_that_do_not_overlap(first, second):
    assert smallest_p(first, second) == pytest.approx(rank_test(range(first), range(100, 100 + second)).p)


def test_the_repetitions_needed_are_the_fewest_that_can_come_out():
    for comparisons, alpha in ((1, 0.05), (1, 0.01), (40, 0.05), (1000, 0.05)):
        needed = repetitions_needed(comparisons, alpha)
        assert smallest_p(needed, needed) * comparisons < alpha <= smallest_p(needed - 1, needed - 1) * comparisons
    assert [repetitions_needed(count, 0.05) for count in (1, 10, 100)] == [4, 6, 8]


def test_cliffs_delta_is_the_share_of_larger_pairs_less_that_of_smaller_ones():
    assert cliffs_delta([1, 2, 3], [2, 3, 4]) == pytest.approx((6 - 1) / 9)
    assert cliffs_delta([5], [5]) == 0
    assert cliffs_delta([4, 5], [1, 2, 3]) == -1


# --- many tests --------------------------------------------------------------------------------------------------------


def with_p(*p: float, smallest: float = 0.0) -> list[RankTest]:
    return [RankTest(value, smallest) for value in p]


def test_the_correction_is_holms():
    # R: p.adjust(c(0.03, 0.01, 0.05, 0.02, 0.04), "holm")
    assert correct(with_p(0.03, 0.01, 0.05, 0.02, 0.04), 0.05).p == pytest.approx([0.09, 0.05, 0.09, 0.08, 0.09])
    assert correct([], 0.05).p == []
    assert correct(with_p(0.9, 0.8), 0.05).p == [1, 1]


def test_a_test_that_cannot_come_out_costs_the_others_nothing():
    found = correct([*with_p(0.01), *with_p(*[1.0] * 99, smallest=1.0)], 0.05)
    assert found.p == [0.01, *[None] * 99]


def test_tests_that_only_together_are_too_many_cannot_come_out():
    p = smallest_p(5, 5)
    assert correct(with_p(*[p] * 6, smallest=p), 0.05).p == pytest.approx([6 * p] * 6)
    assert correct(with_p(*[p] * 7, smallest=p), 0.05).p == [None] * 7


@given(st.lists(st.integers(2, 9), max_size=30), st.sampled_from([0.01, 0.05, 0.2]))
def test_a_test_is_counted_exactly_where_it_can_come_out_beside_the_other_counted_ones(repetitions, alpha):
    tests = [RankTest(smallest_p(count, count), smallest_p(count, count)) for count in repetitions]
    found = correct(tests, alpha)
    assert all(p < alpha for p in found.p if p is not None)
    assert [p is not None for p in found.p] == [test.smallest < found.limit for test in tests]


@pytest.mark.default
@pytest.mark.parametrize("repetitions", [4, 6, 9])
def test_the_chance_of_any_false_finding_is_at_most_alpha(repetitions):
    """20 comparisons whose values have ties and, in pairs, hang together, like p50 and p99 of a trial."""
    chance = random.Random(repetitions)
    alpha, tries, wrong = 0.1, 1000, 0
    for _ in range(tries):
        tests = []
        for _ in range(10):
            values = [round(chance.gauss(0, 3)) for _ in range(2 * repetitions)]
            others = [value + chance.gauss(0, 1) for value in values]
            tests += [rank_test(found[:repetitions], found[repetitions:]) for found in (values, others)]
        wrong += any(p is not None and p < alpha for p in correct(tests, alpha).p)
    assert wrong <= stats.binom.ppf(0.9999, tries, alpha)
    if repetitions == 9:  # the bound is not kept by never finding anything
        assert wrong > 0.02 * tries


# --- the interval of a difference --------------------------------------------------------------------------------------


def share_covered(first, second, difference: float, tries: int = 1000) -> int:
    intervals = (difference_interval(first(), second()) for _ in range(tries))
    return sum(low <= difference <= high for low, high in intervals)


@pytest.mark.parametrize("repetitions", [FEWEST_FOR_INTERVAL, 8, 20])
@pytest.mark.parametrize("scatter", [1, 3])
def test_the_interval_of_a_difference_covers_it_in_95_of_100_comparisons(repetitions, scatter):
    chance = random.Random(repetitions + scatter)
    covered = share_covered(
        lambda: [chance.gauss(100, 1) for _ in range(repetitions)],
        lambda: [chance.gauss(120, scatter) for _ in range(repetitions)],
        20,
    )
    assert 925 <= covered <= (970 if repetitions > 8 else 995)


def test_the_interval_of_a_difference_covers_it_where_values_are_skewed_or_have_outliers():
    chance = random.Random(1)
    skewed = share_covered(*[lambda: [chance.lognormvariate(0, 1) for _ in range(8)]] * 2, 0)
    outliers = share_covered(*[lambda: [chance.gauss(0, 1) + 10 * (chance.random() < 0.1) for _ in range(8)]] * 2, 0)
    assert min(skewed, outliers) >= 935


def test_the_interval_of_a_difference_is_the_same_each_time_and_moves_with_the_values():
    first, second = [10.0, 11, 12, 14, 10.5], [13.0, 14, 12.5, 16, 13.5]
    low, high = difference_interval(first, second)
    assert difference_interval(first, second) == (low, high)
    assert low < 2.3 < high
    moved = difference_interval([3 * value for value in first], [3 * value + 5 for value in second])
    assert moved == (pytest.approx(3 * low + 5), pytest.approx(3 * high + 5))


def test_there_is_no_interval_where_none_can_be_told():
    assert difference_interval([1.0, 2], [5.0, 6, 7, 8, 9]) is None, "too few on one side"
    assert difference_interval([0.0] * 8, [12.0] * 8) is None, "no spread at all"
    assert difference_interval([0.1] * 8, [0.3] * 8) is None, "nor by rounding"
    assert difference_interval([0.0] * 5, [0.0, 0, 0, 0, 12]) is None, "every third resample has no spread"
    assert difference_interval([0.0] * 3, [11.0, 12, 13]) is None, "nor has every ninth"
    low, high = difference_interval([0.0] * 8, [12.0, 12.1, 11.9, 12.2, 11.8, 12.0, 12.3, 11.7])
    assert math.isfinite(low) and low < 12 < high


# -- each figure by hand -------------------------------------------------------------------------------------


def test_an_estimate_is_worked_out_by_hand():
    """Of 2 and 4: mean 3, s = sqrt(2), so the interval reaches t(1) to each side; of 1, 2, 3 and 6 likewise."""
    t = {1: 12.706204736432095, 3: 3.182446305284263}  # 97.5 % points of any table
    found = estimate([2.0, 4.0])
    assert (found.mean, found.repetitions) == (3.0, 2)
    assert (found.low, found.high) == (pytest.approx(3 - t[1]), pytest.approx(3 + t[1]))
    found = estimate([1.0, 2, 3, 6])
    reach = t[3] * math.sqrt((4 + 1 + 0 + 9) / 3) / 2
    assert (found.low, found.mean, found.high) == (pytest.approx(3 - reach), 3.0, pytest.approx(3 + reach))
    assert estimate([1.0, 2, 3, 6], confidence=0.5).high == pytest.approx(3 + reach * 0.7648923284 / t[3])
    assert CONFIDENCE == 0.95 and estimate([2.0, 4.0], confidence=0.95) == estimate([2.0, 4.0])


def test_an_estimate_holds_what_was_pooled_and_is_not_changed():
    assert estimate([1.0]) == Estimate(1.0, None, None, 1) and estimate([1.0], 0.25) == Estimate(1.0, None, None, 1, 0.25)
    assert estimate([1.0, 2.0], 0.0).pooled == 0.0 and Estimate(1.0, None, None, 1).pooled is None
    with pytest.raises(FrozenInstanceError):
        estimate([1.0]).mean = 2
    same = estimate([0.1] * 10)
    assert same.mean == pytest.approx(0.1) and same.high - same.low < 1e-15


@pytest.mark.parametrize(
    ("first", "second", "p", "smallest"),
    [
        ([1], [2], 1, 1),
        ([1, 2], [3, 4], 2 / 6, 2 / 6),
        ([1, 3], [2, 4], 4 / 6, 2 / 6),
        ([1, 4], [2, 3], 1, 2 / 6),
        ([1, 2, 3], [4, 5, 6], 2 / 20, 2 / 20),
        ([1, 2, 4], [3, 5, 6], 4 / 20, 2 / 20),
        ([1], [2, 3, 4], 2 / 4, 2 / 4),
        ([2], [1, 3, 4], 1, 2 / 4),
        ([1, 1], [1, 2], 1, 1),
        ([1, 1, 1], [1, 1, 2], 1, 1),
        ([1, 1, 1], [2, 2, 2], 2 / 20, 2 / 20),
        ([0, 0, 0, 0], [0, 0, 1, 1], 30 / 70, 30 / 70),
    ],
)
def test_p_is_counted_by_hand(first, second, p, smallest):
    assert rank_test(first, second) == (pytest.approx(p), pytest.approx(smallest))
    assert rank_test(second, first) == (pytest.approx(p), pytest.approx(smallest))


@pytest.mark.parametrize("empty", [([], [1.0]), ([1.0], []), ([], [])])
def test_neither_group_may_be_empty(empty):
    with pytest.raises(ValueError, match="^no values$"):
        rank_test(*empty)


def normal(first, second):
    """p by the normal approximation, worked out anew: from U, with the corrections for ties and for continuity."""
    values = [*first, *second]
    n, m, count = len(first), len(second), len(values)
    u = sum((left > right) + (left == right) / 2 for left in first for right in second)
    ties = sum(values.count(value) ** 3 - values.count(value) for value in set(values))
    deviation = math.sqrt(n * m / 12 * ((count + 1) - ties / (count * (count - 1))))
    far = max(0, abs(u - n * m / 2) - 0.5) / deviation
    return 2 * stats.norm.sf(far)


@pytest.mark.parametrize(("first", "second"), [(30, 31), (1, 60), (60, 1), (20, 45), (45, 20)])
def test_beyond_60_values_both_figures_are_those_of_the_normal_distribution(first, second):
    chance = random.Random(first)
    values = [chance.randrange(500) for _ in range(first)], [chance.randrange(300, 800) for _ in range(second)]
    apart = range(first), range(first, first + second)
    assert rank_test(*values).p == pytest.approx(normal(*values), rel=1e-12)
    assert rank_test(*apart) == (pytest.approx(normal(*apart)), pytest.approx(normal(*apart)))
    assert rank_test(*reversed(apart)) == (pytest.approx(normal(*apart)), pytest.approx(normal(*apart)))


@pytest.mark.parametrize(("low", "high"), [(40, 25), (25, 40), (5, 60), (60, 5), (33, 32)])
@pytest.mark.parametrize("size", [30, 20, 45])
def test_the_smallest_p_of_many_values_is_that_of_the_division_that_is_farthest_out(low, high, size):
    """The values are only of two kinds, so the farthest division is the one with all the small or all the large ones."""
    values = [0] * low + [1] * high
    count = len(values)
    farthest = min(normal(values[:size], values[size:]), normal(values[count - size :], values[: count - size]))
    mixed = random.Random(size).sample(values, count)
    found = rank_test(mixed[:size], mixed[size:])
    assert found.smallest == pytest.approx(farthest, rel=1e-12)
    assert found.p == pytest.approx(normal(mixed[:size], mixed[size:]), rel=1e-12) and found.p >= found.smallest


def test_60_values_are_still_counted_exactly_and_61_are_not():
    for second, exact in ((30, True), (31, False)):
        first, other = range(0, 60, 2), range(11, 11 + 2 * second, 2)
        p = stats.mannwhitneyu(first, other, method="exact").pvalue
        assert bool(rank_test(first, other).p == pytest.approx(p, rel=1e-9)) is exact
        assert rank_test(first, other).p == pytest.approx(p, rel=0.1)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [(0, 0, 1), (0, 5, 1), (5, 0, 1), (1, 1, 1), (1, 2, 2 / 3), (2, 2, 2 / 6), (3, 3, 2 / 20), (2, 5, 2 / 21), (4, 4, 2 / 70)],
)
def test_the_smallest_p_with_all_values_different_is_two_of_all_divisions(first, second, p):
    assert smallest_p(first, second) == pytest.approx(p)


@pytest.mark.parametrize(
    ("comparisons", "alpha", "needed"), [(1, 0.99, 2), (1, 2 / 6, 3), (1, 0.34, 2), (1, 2 / 20, 4), (2, 0.21, 3), (0, 0.05, 2)]
)
def test_the_repetitions_needed_are_two_at_least_and_alpha_itself_is_not_below_alpha(comparisons, alpha, needed):
    assert repetitions_needed(comparisons, alpha) == needed


@pytest.mark.parametrize(
    ("first", "second", "delta"),
    [
        ([1], [2], 1),
        ([2], [1], -1),
        ([1, 2], [2, 1], 0),
        ([1, 2, 3], [3], 2 / 3),
        ([3], [1, 2, 3], -2 / 3),
        ([1, 1], [1, 2], 0.5),
    ],
)
def test_cliffs_delta_counts_every_pair(first, second, delta):
    assert cliffs_delta(first, second) == pytest.approx(delta)


# -- corrections by hand -------------------------------------------------------------------------------------


def test_a_corrected_p_is_never_more_than_1_nor_less_than_that_of_a_smaller_p():
    assert correct(with_p(0.5, 0.4, 0.3), 0.05).p == pytest.approx([0.9, 0.9, 0.9])
    assert correct(with_p(0.01, 0.011, 0.9), 0.05).p == pytest.approx([0.03, 0.03, 0.9])
    assert correct(with_p(0.02, 0.02), 0.05).p == pytest.approx([0.04, 0.04])
    assert correct(with_p(0.7), 0.05) == Corrected([0.7], 0.05)
    assert correct(with_p(0.6, 0.6), 0.05).p == [1.0, 1.0]


@pytest.mark.parametrize(
    ("smallest", "limit"),
    [
        ([], 0.1),
        ([0.01], 0.1),
        ([0.1], 0.1),
        ([1.0, 1.0, 1.0], 0.1),
        ([0.01, 0.01], 0.05),
        ([0.01, 0.06], 0.05),
        ([0.01, 0.05], 0.05),
        ([0.01, 0.049], 0.05),
        ([0.01, 0.04, 0.04], 0.1 / 3),
        ([0.001] * 4, 0.025),
        ([0.001] * 4 + [0.5] * 9, 0.025),
        ([0.001] * 3 + [0.03] * 9, 0.1 / 4),
    ],
)
def test_the_limit_is_alpha_over_the_fewest_tests_that_can_come_out_at_it(smallest, limit):
    tests = [RankTest(value, value) for value in smallest]
    found = correct(tests, 0.1)
    assert found.limit == pytest.approx(limit)
    assert [p is not None for p in found.p] == [value < found.limit for value in smallest]


def test_a_test_that_can_come_out_is_corrected_for_those_that_can_only():
    tests = [RankTest(0.02, 0.001), RankTest(0.5, 0.9), RankTest(0.01, 0.002), RankTest(0.3, 0.05)]
    found = correct(tests, 0.1)
    assert found.limit == pytest.approx(0.05)
    assert found.p == [pytest.approx(0.02), None, pytest.approx(0.02), None]


# -- the interval of a difference, once more -----------------------------------------------------------------

FIRST, SECOND = [10.0, 11, 12, 14, 10.5], [13.0, 14, 12.5, 16, 13.5]


def test_the_interval_of_a_difference_lies_around_it_and_grows_with_confidence():
    low, high = difference_interval(FIRST, SECOND)
    assert (low + high) / 2 == pytest.approx(13.8 - 11.5)
    assert difference_interval(FIRST, SECOND, 0.95) == (low, high)
    reaches = [difference_interval(FIRST, SECOND, confidence)[1] for confidence in (0.5, 0.8, 0.95, 0.99)]
    assert reaches == sorted(reaches) and len(set(reaches)) == 4


def test_the_interval_of_a_difference_is_turned_round_with_the_groups():
    """The resamples of the two groups are others then, so to a tenth."""
    low, high = difference_interval(FIRST, SECOND)
    turned = difference_interval(SECOND, FIRST)
    assert turned == (pytest.approx(-high, rel=0.1), pytest.approx(-low, rel=0.1, abs=0.2))


def resampled_by_hand(first, second, confidence):
    """The symmetric bootstrap-t, resample by resample, with weights of the same generators."""
    import numpy as np

    def of(values, seed):
        count = len(values)
        generator = np.random.default_rng([seed, count])
        for weights in generator.multinomial(count, np.full(count, 1 / count), size=4999):
            chosen = [value for value, often in zip(values, weights, strict=True) for _ in range(often)]
            mean = math.fsum(chosen) / count
            yield mean - math.fsum(values) / count, math.fsum((value - mean) ** 2 for value in chosen) / (count - 1) / count

    far = []
    for (moved, variance), (other, more) in zip(of(first, 0), of(second, 1), strict=True):
        error = math.sqrt(variance + more)
        far.append(abs(other - moved) / error if error > 1e-9 else math.inf if abs(other - moved) > 1e-9 else 0.0)
    return sorted(far)[math.ceil(confidence * len(far)) - 1]


@pytest.mark.parametrize(("first", "second"), [(FIRST, SECOND), (FIRST[:3], [20.0, 25.0, 24.0, 21.0])])
def test_the_interval_of_a_difference_is_the_one_that_resampling_by_hand_gives(first, second):
    low, high = difference_interval(first, second, 0.9)
    reach = resampled_by_hand(first, second, 0.9) * math.sqrt(stats.sem(first) ** 2 + stats.sem(second) ** 2)
    assert (high - low) / 2 == pytest.approx(reach, rel=1e-9)


def test_the_interval_of_a_difference_takes_three_repetitions_on_each_side():
    assert FEWEST_FOR_INTERVAL == 3
    assert difference_interval([1.0, 2.0], [5.0, 6.0, 7.0]) is None and difference_interval([5.0, 6.0, 7.0], [1.0, 2.0]) is None
    assert difference_interval([1.0, 2.0, 4.0], [5.0, 6.5, 7.0], 0.5) is not None


def test_a_group_without_any_spread_leaves_the_spread_of_the_other():
    low, high = difference_interval([5.0] * 8, [12.0, 12.1, 11.9, 12.2, 11.8, 12.0, 12.3, 11.7])
    assert 6 < low < 7 < high < 8
    low, high = difference_interval([12.0, 12.1, 11.9, 12.2, 11.8, 12.0, 12.3, 11.7], [5.0] * 8)
    assert -8 < low < -7 < high < -6


@pytest.mark.parametrize("values", [[96.8, 30.6, 31.04], [7.23, 88.55, 92.08], [53.08, 27.83, 72.5], [31.4, 60.86, 25.2]])
def test_what_rounding_leaves_of_a_resample_without_spread_is_no_spread(values):
    """Every ninth resample of three values holds one of them only, so one in twenty cannot be told from infinitely far."""
    assert difference_interval([0.0] * 3, values) is None and difference_interval(values, [0.0] * 3) is None
