import itertools
import math
import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from autotest.results.statistics import (
    FEWEST_FOR_INTERVAL,
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
