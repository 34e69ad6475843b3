import random

import numpy as np
import pytest
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.batch import summarise
from autotest.results.figures import PERCENTILES
from autotest.results.histogram import Histogram, format_histogram, parse_histogram
from autotest.results.pairs import MAX_DIGITS, parse_pairs

NUMBERS = st.one_of(st.integers(1, 200), st.integers(1, 10**MAX_DIGITS - 1))
HISTOGRAMS = st.dictionaries(NUMBERS, st.one_of(st.integers(1, 12), st.integers(1, 10**9)), min_size=1, max_size=40)
BROKEN = st.sampled_from(
    [
        b"",
        b"\n",
        b"1,2",
        b"1,2\n3",
        b"1,2\n\n",
        b"1\n",
        b"1,2,3\n",
        b"a,b\n",
        b"2,1\n1,1\n",
        b"1,1\n1,1\n",
        b"5,0\n",
        b",1\n",
        b"1,\n",
        b"1234567890123456,1\n",
        b"1,1\r\n",
        b"-1,1\n",
        b"1.5,1\n",
        b"1,1\n\x00\x00\x00\x00",
        b"\xff,1\n",
        b"1\n2,3\n,4\n",
        b"1,2,3\n4\n",
    ]
)


def plain(content: bytes) -> list[tuple[int, int]] | None:
    """The pairs of a text, or None, by a loop over lines."""
    pairs = []
    for line in content[:-1].split(b"\n"):
        fields = line.split(b",")
        if len(fields) != 2 or not all(0 < len(field) <= MAX_DIGITS and set(field) <= set(b"0123456789") for field in fields):
            return None
        pairs.append((int(fields[0]), int(fields[1])))
    return pairs


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1))
def test_pairs_of_any_length_are_read(pairs):
    found = parse_pairs("".join(f"{value},{count}\n" for value, count in pairs).encode())
    assert list(zip(found.values.tolist(), found.counts.tolist(), strict=True)) == pairs


@settings(max_examples=examples(500))
@given(st.text("0123456789,\n ax-\0", max_size=30).map(str.encode))
def test_any_text_is_read_as_a_loop_over_lines_reads_it(text):
    found = parse_pairs(text + b"\n")
    pairs = None if found is None else list(zip(found.values.tolist(), found.counts.tolist(), strict=True))
    assert pairs == plain(text + b"\n")


@given(st.lists(st.one_of(HISTOGRAMS.map(lambda counts: format_histogram(Histogram.of(counts))), BROKEN), max_size=12))
def test_a_batch_says_of_each_file_what_the_file_alone_says(contents):
    for content, found in zip(contents, summarise(contents), strict=True):
        try:
            alone = parse_histogram(content, "x").summary(list(PERCENTILES))
        except ResultsError:
            assert found is None
            continue
        if found is None:  # numbers that a batch does not take
            assert alone.samples > 2**46 / 40
            continue
        assert (found.samples, found.max, found.percentiles) == (alone.samples, alone.max, alone.percentiles)
        assert found.mean == pytest.approx(alone.mean, rel=1e-12)
        assert found.std == pytest.approx(alone.std, rel=1e-6, abs=alone.mean * 1e-7)


def test_a_summary_does_not_depend_on_what_else_is_in_the_batch():
    """Or else what is cached and what is read together with other files would differ in rounding."""
    dice = random.Random(7)
    contents = []
    for _ in range(60):
        lines = range(dice.choice([1, 9, 200, 3000]))
        counts = {dice.randrange(1, 10 ** dice.randrange(2, 9)): dice.randrange(1, 50) for _ in lines}
        contents.append(format_histogram(Histogram.of(counts)))
    alone = [summarise([content])[0] for content in contents]
    for size in (2, 7, 60):
        dice.shuffle(order := list(range(60)))
        for at in range(0, 60, size):
            part = order[at : at + size]
            assert summarise([contents[index] for index in part]) == [alone[index] for index in part]


def test_one_broken_file_among_many_does_not_harm_the_others():
    whole = b"10,1\n11,2\n"
    found = summarise([whole] * 30 + [b"10,1\n9,2\n"] + [whole] * 30 + [b"x\n"])
    assert [index for index, summary in enumerate(found) if summary is None] == [30, 61]
    assert {summary.samples for summary in found if summary} == {3}


def test_numbers_too_large_for_whole_number_ranks_are_left_to_the_single_file():
    content = format_histogram(Histogram.of({1: 10**14, 2: 10**14}))
    assert summarise([content, b"1,1\n"])[0] is None
    assert parse_histogram(content, "x").summary([50.0]).percentiles == (1,)


def test_values_near_each_other_and_far_from_zero_keep_their_deviation():
    (found,) = summarise([b"999999999999998,1\n999999999999999,1\n"])
    assert found.std == pytest.approx(np.sqrt(0.5), abs=0.2)
