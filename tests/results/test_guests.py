"""Several guests in one trial: figures of each, fairness, spreads, and that all that is told of them adds up."""

import json
import math
from fractions import Fraction
from importlib import resources

import jsonschema
import pytest
import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.figures import figures, verdict
from autotest.results.guest_latencies import parse_guest_latencies
from autotest.results.guests import jain_index, missing_in_words, spread
from autotest.results.histogram import Histogram, parse_histogram, sum_histograms
from autotest.results.moongen import parse_moongen_output
from autotest.results.verdicts import Tolerances, Verdict


def measured(
    *totals,
    text="",
    numbers=None,
    weights=(),
    histograms=None,
    whole=None,
    samples=100,
    interface=None,
    tolerances=Tolerances(),
    unreadable="",
):
    """Figures of a run of 30 s, of whose guests these frames were sent and received."""
    text = text or sample.of_guests(*totals, samples=samples)
    numbers = tuple(range(1, len(totals) + 1)) if numbers is None else numbers
    if histograms is None:
        parsed = parse_guest_latencies(sample.guest_histograms(len(totals), samples).encode(), "g")
        histograms = {number: parsed[place] for place, number in enumerate(numbers, 1) if place in parsed}
    whole = sum_histograms(histograms.values()) if whole is None else whole
    return figures(
        parse_moongen_output(text), whole, 30.0, tolerances,
        interface=interface, guests=numbers, weights=weights, guest_latencies=histograms, unreadable=unreadable,
    )  # fmt: skip


def judged(*totals, offered=10, **others):
    return verdict(measured(*totals, **others), offered, runtime=30)


EVEN = ((75_000, 75_000),) * 4


# -- figures -----------------------------------------------------------------------------------------------


def test_each_guest_has_its_figures():
    found = measured((200_000, 180_000), (100_000, 100_000))
    first, second = found.guests
    assert (first.guest, first.mac, second.guest, second.mac) == (1, sample.mac(1), 2, sample.mac(2))
    assert (first.sent, first.received, first.lost, first.loss) == (200_000, 180_000, 20_000, 0.1)
    assert (first.sent_bytes, first.received_bytes) == (200_000 * 64, 180_000 * 64)
    assert (first.achieved_kpps, second.achieved_kpps) == (pytest.approx(200 / 30), pytest.approx(100 / 30))
    assert (second.loss, second.samples, second.p50_ns, second.p25_ns, second.max_ns) == (0, 100, 10_149, 10_124, 10_199)
    assert math.isclose(second.mean_ns, 10_149.5) and (second.p99_ns, second.p999_ns) == (10_198, 10_199)
    assert (found.sent, found.received, found.samples, found.p50_ns) == (300_000, 280_000, 200, 10_099)


def test_a_guest_that_loses_a_tenth_reads_ten_per_cent_and_its_neighbours_none():
    found = measured((75_000, 67_500), *EVEN[1:])
    assert [guest.loss for guest in found.guests] == [0.1, 0, 0, 0] and found.loss == 7_500 / 300_000
    assert found.loss_spread == 0.1
    assert verdict(found, 10, runtime=30).verdict is Verdict.VALID


def test_guests_have_their_own_numbers_where_some_are_missing():
    found = measured(*EVEN[:3], numbers=(1, 2, 4))
    assert [guest.guest for guest in found.guests] == [1, 2, 4] and found.guests[2].mac == sample.mac(3)
    assert [guest.p50_ns for guest in found.guests] == [10_049, 10_149, 10_249] and not found.contradiction


def test_the_output_tells_how_many_guests_there_were_where_nobody_else_does():
    found = figures(parse_moongen_output(sample.of_guests(*EVEN)), Histogram.of({5: 400}), 30.0)
    assert [guest.guest for guest in found.guests] == [1, 2, 3, 4] and not found.contradiction
    assert [guest.p50_ns for guest in found.guests] == [None] * 4 and found.p50_spread_ns is None


def test_figures_of_guests_survive_json():
    found = json.loads(json.dumps(measured(*EVEN).to_dict(), allow_nan=False))
    assert [guest["guest"] for guest in found["guests"]] == [1, 2, 3, 4]
    assert found["guests"][0]["p50_ns"] == 10_049 and found["fairness"] == 1


# -- fairness and spreads ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shares", "index"),
    [([1, 1, 1, 1], 1), ([5, 0, 0, 0], 0.25), ([7], 1), ([1, 0], 0.5), ([1, 1, 0, 0, 0], 0.4), ([50, 30, 50], 130**2 / (3 * 5900)), ([], None), ([0, 0], None)],
)  # fmt: skip
def test_jains_index_is_as_its_paper_has_it(shares, index):
    """k of n that share equally while the others get nothing make k/n."""
    assert jain_index(shares) == (index if index is None else pytest.approx(index, rel=1e-12))


@given(st.lists(st.integers(0, 10**19), min_size=1, max_size=50), st.integers(1, 10**6))
def test_jains_index_lies_between_one_nth_and_one_and_knows_no_unit(shares, factor):
    index = jain_index(shares)
    if not any(shares):
        assert index is None
        return
    exact = Fraction(sum(shares) ** 2, len(shares) * sum(share * share for share in shares))
    assert index == pytest.approx(float(exact), rel=1e-12) and index <= 1 and index >= 1 / len(shares) * (1 - 1e-12)
    assert jain_index([share * factor for share in shares]) == pytest.approx(index, rel=1e-12)


def test_fairness_is_relative_to_the_weights():
    totals = ((225_000, 225_000), (75_000, 75_000))
    assert measured(*totals, weights=(3, 1)).fairness == 1
    assert measured(*totals).fairness == pytest.approx(0.8)  # (3 + 1)^2 / (2 * (9 + 1))
    assert measured(*EVEN, weights=(1, 1, 1, 1)).fairness == measured(*EVEN).fairness == 1


def test_fairness_is_of_what_came_back_and_not_of_what_was_sent():
    assert measured((150_000, 150_000), (150_000, 50_000)).fairness == pytest.approx(0.8)


def test_where_nothing_came_back_there_is_no_fairness():
    found = measured((150_000, 0), (150_000, 0), samples=0)
    assert (found.fairness, found.loss_spread, found.p50_spread_ns) == (None, 0, None)


def test_weights_of_other_guests_are_refused():
    with pytest.raises(ValueError):
        measured(*EVEN, weights=(3, 1))


def test_a_spread_is_of_two_at_least():
    assert (spread([]), spread([5]), spread([None, 5, None]), spread([7, None, 5]), spread([0.25, 0.75])) == (
        None,
        None,
        None,
        2,
        0.5,
    )
    assert measured(*EVEN).p50_spread_ns == 300


# -- what must add up --------------------------------------------------------------------------------------


def without_line(number, *totals):
    return "".join(line for line in sample.of_guests(*totals).splitlines(keepends=True) if f"Guest {number} (" not in line)


HISTOGRAMS = parse_guest_latencies(sample.guest_histograms(4).encode(), "g")
WHOLE = parse_histogram(sample.histogram(400).encode(), "h")
SHIFTED = {**HISTOGRAMS, 4: Histogram(HISTOGRAMS[4].values + 1, HISTOGRAMS[4].counts)}

CONTRADICTIONS = {
    "a line is missing": ({"text": without_line(3, *EVEN)}, "the load went to 4 guests, the output tells of those numbered 1, 2, 4"),
    "the last line is missing": ({"text": without_line(4, *EVEN)}, "the load went to 4 guests, the output tells of 3"),
    "no lines": ({"text": sample.output()}, "the load went to 4 guests, the output tells of none"),
    "a line too many": ({"text": sample.of_guests(*EVEN, (0, 0))}, "the load went to 4 guests, the output tells of 5"),
    "several where there was one": ({"numbers": (2,)}, "the load went to 1 guest, the output tells of 4"),
    "samples of another run": ({"whole": Histogram.of({5: 399})}, "the guests have 400 latency samples together, the histogram holds 399"),
    "a guest's samples of another run": (
        {"histograms": {**HISTOGRAMS, 2: Histogram.of({5: 99})}, "whole": WHOLE}, "100 latency samples of guest2, its histogram holds 99"),
    "a guest without a histogram": (
        {"histograms": {n: HISTOGRAMS[n] for n in (1, 2, 3)}, "whole": WHOLE}, "100 latency samples of guest4, its histogram holds 0"),
    "no histogram of any": ({"histograms": {}, "whole": WHOLE}, "100 latency samples of guest, its histogram holds 0"),
    "a histogram of a stranger": ({"histograms": {**HISTOGRAMS, 7: Histogram.of({5: 1})}, "whole": WHOLE}, "samples of guest7, to which no load went"),
    "as many samples, but others": ({"histograms": SHIFTED, "whole": WHOLE}, "the guests' histograms together are not the histogram"),
    "a file that cannot be read": ({"unreadable": "the guests' histograms:3: 'x' is not"}, "the guests' histograms:3: 'x'"),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "says"), CONTRADICTIONS.values(), ids=CONTRADICTIONS)
def test_what_is_told_of_the_guests_must_be_of_one_run(arguments, says):
    found = judged(*EVEN, **arguments)
    assert found.verdict is Verdict.INCOMPLETE and says in found.reason


def test_what_is_of_one_run_contradicts_nothing_whether_summed_up_or_not():
    for whole in (WHOLE, WHOLE.summary([25, 50, 75, 95, 99, 99.9])):
        assert judged(*EVEN, whole=whole).verdict is Verdict.VALID


def test_a_guest_without_samples_is_no_contradiction():
    text = sample.of_guests(*EVEN).replace("400 latency", "0 latency")
    text = text.replace(sample.guest_line(3, 75_000, 75_000), sample.guest_line(3, 75_000, 75_000, 0))
    found = measured(*EVEN, text=text, histograms={number: HISTOGRAMS[number] for number in (1, 2, 4)})
    assert not found.contradiction and found.guests[2].p50_ns is None
    assert found.p50_spread_ns == HISTOGRAMS[4].percentile(50) - HISTOGRAMS[1].percentile(50)


def exchanged(*lines):
    """The output of four guests, but with other lines of them."""
    return sample.output() + "".join(sample.guest_line(number, *each) for number, each in enumerate(lines, 1))


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (((75_000, 75_000),) * 3 + ((74_900, 74_900),), "the guests were sent 299900 frames together, the generator sent 300000"),
        (((75_000, 75_000),) * 3 + ((75_100, 75_000),), "the guests were sent 300100 frames together, the generator sent 300000"),
        (
            ((75_000, 75_000),) * 3 + ((75_000, 74_900),),
            "the guests returned 299900 frames together, the generator received 300000",
        ),
        (((75_000, 75_050),) * 4, "the guests returned 300200 frames together, the generator received 300000"),
        (((75_000, 75_065), (75_000, 74_935), *EVEN[2:]), "received 75065 frames from guest, but sent it only 75000"),
    ],
)
def test_the_guests_frames_must_be_those_of_the_device(lines, says):
    found = judged(*EVEN, text=exchanged(*lines))
    assert found.verdict is Verdict.COUNTER_MISMATCH and says in found.reason


@pytest.mark.parametrize("off", [64, -64])
def test_within_the_margin_of_the_devices_counters_the_guests_frames_may_differ(off):
    assert judged(*EVEN, text=exchanged(*EVEN[:3], (75_000 + off, 75_000 + off))).verdict is Verdict.VALID
    assert judged(*EVEN, text=exchanged(*EVEN[:3], (75_000 + 2 * off, 75_000))).verdict is Verdict.COUNTER_MISMATCH
    wide = Tolerances(in_flight_frames=1000)
    found = measured(*EVEN, text=exchanged(*EVEN[:3], (75_000 + 2 * off, 75_000)), tolerances=wide)
    assert verdict(found, 10, runtime=30, tolerances=wide).verdict is Verdict.VALID


def test_frames_of_nobody_that_would_be_a_guests_loss_are_a_mismatch_though_within_the_margin():
    few = ((2000, 2000),) * 4
    whole = sample.of_guests(*few)
    told = whole.replace(sample.guest_line(2, 2000, 2000), sample.guest_line(2, 2000, 1940))
    assert told != whole
    found = judged(*few, text=told, offered=8 / 30)
    assert found.verdict is Verdict.COUNTER_MISMATCH
    assert (
        found.reason == "of 2000 frames sent to guest2, 60 are missing, but of 60 that came back it is not known whose they are"
    )
    # a hundredth of what a guest was sent is no more than a plot shows; and what nobody misses is other traffic
    told = whole.replace(sample.guest_line(2, 2000, 2000), sample.guest_line(2, 2000, 1980))
    assert judged(*few, text=told, offered=8 / 30).verdict is Verdict.VALID


# -- verdicts ----------------------------------------------------------------------------------------------


def test_a_guest_of_which_nothing_came_back_is_named():
    found = judged(EVEN[0], (75_000, 0), *EVEN[2:])
    assert (found.verdict, found.reason) == (Verdict.NO_REFLECTION, "of 75000 frames sent to guest2, none came back")
    three = judged(EVEN[0], (75_000, 0), (75_000, 0), (75_000, 1), numbers=(1, 2, 4, 5))
    assert three.reason == "of 75000 frames sent to guest2, none came back; of 75000 frames sent to guest4, none came back"


def test_a_guest_to_which_nothing_was_sent_makes_the_trial_incomplete():
    found = judged((150_000, 150_000), (150_000, 150_000), (0, 0))
    assert (found.verdict, found.reason) == (Verdict.INCOMPLETE, "nothing was sent to guest3")


def test_of_a_thousand_guests_a_reason_names_a_few():
    text = missing_in_words({f"guest{number}": "did not boot" for number in range(2, 1001)}, 1)
    assert text.startswith("999 of 1000 guests were not there: guest2: did not boot; guest3: ") and text.endswith(
        "guest6: did not boot; 994 more"
    )
    assert missing_in_words({}, 4) == "" and missing_in_words({"guest3": ""}, 3) == "1 of 4 guests were not there: guest3"


# -- the published format ----------------------------------------------------------------------------------


def test_the_schema_describes_the_figures_of_guests_and_allows_what_is_written():
    schema = json.loads((resources.files("autotest.results") / "trial.schema.json").read_text())
    found = measured((75_000, 0), *EVEN[1:]).to_dict()
    assert list(schema["$defs"]["guest"]["properties"]) == list(found["guests"][0])
    validator = jsonschema.Draft202012Validator({**schema["properties"]["figures"], "$defs": schema["$defs"]})
    validator.validate(found)
    validator.validate(measured((75_000, 0), (75_000, 0), samples=0).to_dict())
    assert not validator.is_valid({**found, "guests": [{**found["guests"][0], "guest": 0}]})
    assert not validator.is_valid({**found, "fairness": 1.5})
