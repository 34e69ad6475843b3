import json
import math
from dataclasses import FrozenInstanceError, fields, replace

import pytest
import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.figures import PERCENTILES, Judgement, figures, in_flight_margin, verdict
from autotest.results.histogram import Histogram, Summary, parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.verdicts import Tolerances, Verdict

HISTOGRAM = Histogram.of({1000 + value: 1 for value in range(200)})


def measured(sent=300_000, received=300_000, histogram=HISTOGRAM, seconds=30.0, text="", interface=None):
    return figures(parse_moongen_output(text or sample.output(sent, received)), histogram, seconds, interface=interface)


def test_loss_and_rate_come_from_totals():
    found = measured(631407502, 585731518)
    assert found.loss == 45675984 / 631407502
    assert found.achieved_kpps == pytest.approx(21046.917)
    assert (found.samples, found.p50_ns, found.p99_ns, found.p999_ns, found.max_ns) == (200, 1099, 1197, 1199, 1199)
    assert math.isclose(found.mean_ns, 1099.5)


def test_the_mean_size_comes_from_the_bytes_that_were_sent():
    found = measured(300_000, 290_000)
    assert (found.sent_bytes, found.received_bytes, found.mean_size) == (300_000 * 64, 290_000 * 64, 60.0)
    mixed = sample.output(12_000, 12_000).replace(f"{12_000 * 64} bytes", f"{7000 * 64 + 4000 * 594 + 1000 * 1518} bytes")
    assert measured(text=mixed).mean_size == (7 * 60 + 4 * 590 + 1514) / 12
    assert measured(0, 0).mean_size is None and measured(text=sample.output()[:-100]).mean_size is None


def test_with_one_guest_there_is_nothing_to_compare():
    found = figures(parse_moongen_output(sample.output()), HISTOGRAM, 30.0, guests=(1,), weights=(1,))
    assert (found.guests, found.fairness, found.loss_spread, found.p50_spread_ns) == ((), None, None, None)
    assert found == measured() and verdict(found, 10).verdict is Verdict.VALID


def test_one_frame_in_ten_lost_reads_ten_percent():
    assert measured(300_000, 270_000).loss == 0.1


def test_more_received_than_sent_is_no_negative_loss():
    assert measured(1000, 1064).loss == 0
    found = measured(1000, 1065)
    assert found.counter_mismatch and found.loss is None and found.lost is None
    assert in_flight_margin(10**9) == 10**4


def lines(*seconds):
    return {"text": sample.output(seconds="".join(seconds))}


SECOND, SILENT = sample.second(), sample.second("0.00 0")
NOT_OF_ONE_RUN = sample.output(samples=sample.samples_line(sample.histogram(201, 1000)))
DIED = "[FATAL] Lua error in task timerSlave\n" + sample.output()

TRIALS = {
    "as it should be": ({}, 10, "valid", ""),
    "as fast as possible": ({}, 0, "valid", ""),
    "99 % of the offered rate": ({"sent": 297_000, "received": 297_000}, 10, "valid", ""),
    "a NIC that paces too fast": ({"sent": 316_000, "received": 316_000}, 10, "valid", ""),
    "half of the frames lost": ({"received": 150_000}, 10, "valid", ""),
    "as few samples as are needed": ({"histogram": Histogram.of({5: 100})}, 10, "valid", ""),
    "histogram and output of one run": ({"text": sample.output(samples=sample.samples_line(sample.histogram(200, 1000)))}, 10, "valid", ""),
    "frames that the generator itself lost": ({"interface": (299_936, 300_064), "received": 299_000}, 10, "counter-mismatch", "interface received 300064"),
    "within the margin at the interface": ({"interface": (299_936, 300_064)}, 10, "valid", ""),
    "others' frames at the interface, none lost": ({"interface": (300_000, 400_000)}, 10, "valid", ""),
    "silent at the beginning and at the end": (lines(SILENT, SECOND * 28, SILENT), 10, "valid", ""),
    "livelock": (lines(SILENT * 30), 10, "valid", ""),
    "less than 99 % of the offered rate": ({"sent": 296_900, "received": 296_000}, 10, "under-sent", "sent 9.89667 kpps, offered 10 kpps"),
    "more than 110 % of the offered rate": ({"sent": 331_000, "received": 331_000}, 10, "disturbed", "sent 11.0333 kpps, offered 10 kpps"),
    "nothing came back": ({"received": 0}, 10, "no-reflection", "of 300000 frames sent, 0 came back"),
    "only others' frames came, which the generator left out": (
        {"received": 0, "histogram": Histogram.of({}), "interface": (300_000, 2_999)}, 10, "no-reflection", "0 came back"),
    "the generator took none of what came back": (
        {"received": 0, "histogram": Histogram.of({}), "interface": (300_000, 3_000)}, 10, "counter-mismatch", "received 3000"),
    "only others' frames came": ({"received": 20, "histogram": Histogram.of({})}, 10, "no-reflection", "20 came back"),
    "no samples": ({"received": 290_000, "histogram": Histogram.of({})}, 10, "too-few-samples", "0 latency samples"),
    "three samples": ({"histogram": Histogram.of({5: 3})}, 10, "too-few-samples", "3 latency samples, 100 are needed"),
    "more received than sent": ({"received": 400_000}, 10, "counter-mismatch", "received 400000 frames, but sent only 300000"),
    "the generator claims too much": (
        {"interface": (200_000, 300_000)}, 10, "counter-mismatch", "claims 300000 frames sent, the interface sent 200000"),
    "something else sends there": ({"interface": (300_065, 300_000)}, 10, "counter-mismatch", "the interface sent 300065"),
    "the generator claims to have received too much": (
        {"interface": (300_000, 299_000)}, 10, "counter-mismatch", "claims 300000 frames received, the interface received 299000"),
    "drop-outs": (lines(SECOND * 10, SILENT * 2, SECOND * 3, SILENT, SECOND * 14), 10, "disturbed", "in second 11-12, 16"),
    "the reflector dies half way": (lines(SECOND * 15, SILENT * 15), 10, "disturbed", "nothing was received in second 16-29"),
    "no histogram": ({"histogram": None}, 10, "incomplete", "missing or cut off"),
    "unknown how long": ({"seconds": None}, 10, "incomplete", "how long"),
    "nothing sent": ({"sent": 0, "received": 0}, 10, "incomplete", "nothing was sent"),
    "cut off": ({"text": sample.output()[:-100]}, 10, "incomplete", "no final totals"),
    "a task died": ({"text": DIED}, 10, "incomplete", "Lua error in task timerSlave"),
    "ended early, by its lines": (lines(SECOND * 10), 10, "incomplete", "for 12.5 s instead of 30 s"),
    "a guest was not there": ({"missing": "guest2"}, 10, "missing-guests", "guest2"),
    "a guest was not there, and too little was sent": (
        {"missing": "guest2", "sent": 290_000, "received": 290_000}, 10, "missing-guests", "guest2; sent 9.66667 kpps, offered 10 kpps"),
    "a guest was not there, and too much was sent": ({"missing": "guest2", "sent": 331_000, "received": 331_000}, 10, "disturbed", "another load"),
    "a guest was not there, nor were samples": ({"missing": "guest2", "histogram": Histogram.of({5: 3})}, 10, "too-few-samples", "3 latency"),
    "histogram of another run": ({"text": NOT_OF_ONE_RUN}, 10, "incomplete", "of 201 latency samples, the histogram holds 200"),
}  # fmt: skip


@pytest.mark.parametrize(("others", "expected"), [(5 * 64, Verdict.VALID), (5 * 64 + 1, Verdict.COUNTER_MISMATCH)])
def test_frames_of_others_go_on_as_long_as_the_run(others, expected):
    """A spanning tree says hello each two seconds: 150 frames in five minutes, of which the load is none the worse."""
    output = parse_moongen_output(sample.output(3_000_000, 2_900_000, seconds=SECOND * 300))
    for interface in ((3_000_000 + others, 2_900_000), (3_000_000, 2_900_000 + others)):
        found = figures(output, HISTOGRAM, 300.0, interface=interface)
        assert verdict(found, 10, runtime=300).verdict is expected
    output = parse_moongen_output(sample.output(3_000_000, 3_000_000 + others, seconds=SECOND * 300))
    assert verdict(figures(output, HISTOGRAM, 300.0), 10, runtime=300).verdict is expected


@pytest.mark.parametrize(("arguments", "offered", "expected", "says"), TRIALS.values(), ids=TRIALS)
def test_each_kind_of_trial_gets_exactly_its_verdict(arguments, offered, expected, says):
    others = {name: value for name, value in arguments.items() if name != "missing"}
    judgement = verdict(measured(**others), offered, runtime=30, missing=arguments.get("missing", ""))
    assert judgement.verdict == expected
    assert says in judgement.reason and bool(judgement.reason) == (expected != "valid")


def test_there_is_a_trial_of_each_verdict():
    assert {expected for _, _, expected, _ in TRIALS.values()} == set(Verdict)


def test_a_disturbed_trial_is_disturbed_whatever_its_figures():
    judgement = verdict(measured(296_000, 0), 10, disturbed="link went down")
    assert (judgement.verdict, judgement.reason) == (Verdict.DISTURBED, "link went down")


@pytest.mark.parametrize(
    ("trial", "tolerances"),
    [
        ("less than 99 % of the offered rate", {"under_sent": 0.02}),
        ("more than 110 % of the offered rate", {"over_sent": 0.2}),
        ("three samples", {"min_samples": 3}),
        ("only others' frames came", {"no_reflection": 0, "min_samples": 0}),
        ("more received than sent", {"in_flight_frames": 100_000}),
        ("more received than sent", {"in_flight_share": 0.5}),
        ("the generator claims too much", {"in_flight_share": 0.5}),
        ("drop-outs", {"dropout_seconds": 3}),
        ("ended early, by its lines", {"stopped_early": 0.6, "over_sent": 2}),
    ],
)
def test_every_tolerance_can_be_stated(trial, tolerances):
    arguments, offered, expected, _ = TRIALS[trial]
    stated = Tolerances(**tolerances)
    output = parse_moongen_output(
        arguments.get("text") or sample.output(arguments.get("sent", 300_000), arguments.get("received", 300_000))
    )
    found = figures(output, arguments.get("histogram", HISTOGRAM), 30.0, stated, interface=arguments.get("interface"))
    assert verdict(found, offered, runtime=30, tolerances=stated).verdict is Verdict.VALID != expected


def test_tolerances_are_read_from_settings_and_missing_ones_are_the_defaults():
    assert Tolerances.of({}) == Tolerances() and Tolerances.of({"retries": 3, "cooldown": 1.0}) == Tolerances()
    assert Tolerances.of({"tolerance_min_samples": 7, "tolerance_over_sent": 0.5}) == Tolerances(min_samples=7, over_sent=0.5)


@pytest.mark.parametrize(
    ("scale", "says"),
    [
        (1000, "must be in µs: units are mixed"),
        (1e6, "must be in ms: units are mixed"),
        (1e-3, "must be in ps"),
        (1.01, "not of one run"),
    ],
)
def test_a_histogram_in_other_units_or_of_another_run_is_found_out(scale, says):
    text = sample.histogram(200, 70_000)
    output = sample.output(samples=sample.samples_line(text, scale))
    judgement = verdict(measured(text=output, histogram=parse_histogram(text.encode(), "h")), 10)
    assert judgement.verdict is Verdict.INCOMPLETE and says in judgement.reason


def test_a_histogram_that_is_all_zero_in_a_coarser_unit_is_found_out():
    output = sample.output(samples=sample.samples_line(sample.histogram(200, 7000)))
    assert "not in ns" in verdict(measured(text=output, histogram=Histogram.of({0: 200})), 10).reason


@pytest.mark.parametrize("printed", ["Samples: 0, Average: nan ns", "Samples: 0, Average: -nan ns"])
def test_no_samples_and_nan_agree(printed):
    line = printed + ", StdDev: nan ns, Quartiles: nan/nan/nan ns\n"
    empty = measured(text=sample.output(samples=line), histogram=Histogram.of({}))
    assert verdict(empty, 10).verdict is Verdict.TOO_FEW_SAMPLES
    assert verdict(measured(text=sample.output(samples=line)), 10).verdict is Verdict.INCOMPLETE


@given(st.dictionaries(st.integers(0, 10**9), st.integers(1, 10**4), min_size=1, max_size=30))
def test_a_histogram_and_its_own_line_never_contradict_each_other(counts):
    histogram = Histogram.of(counts)
    line = sample.samples_line("".join(f"{value},{count}\n" for value, count in counts.items()))
    assert not measured(text=sample.output(samples=line), histogram=histogram).contradiction


def test_the_time_that_the_program_measured_counts_and_not_the_number_of_lines():
    said = "[INFO]  Test frames: sent 300000 in 30.001 s, received 300000, 0 of them in a drain of 0.001 s\n"
    found = measured(text=sample.output(seconds=SECOND * 20) + said)
    assert found.seconds == 30.001 and verdict(found, 10, runtime=30).verdict is Verdict.VALID


def test_a_summary_gives_the_figures_of_its_histogram():
    histogram = Histogram.of({1000 * value: value % 7 + 1 for value in range(1, 900)})
    found = measured(histogram=histogram)
    assert measured(histogram=histogram.summary(list(PERCENTILES))) == found
    assert (found.samples, found.mean_ns, found.std_ns) == (
        histogram.samples,
        histogram.mean,
        pytest.approx(histogram.std, rel=1e-12),
    )
    assert [found.p25_ns, found.p999_ns] == histogram.percentiles([25, 99.9]) and found.max_ns == histogram.max


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_figures_survive_json_and_loss_is_a_share(sent, received):
    text = sample.output(sent, received, seconds=SECOND * 3 + SILENT * 2 + SECOND)
    found = measured(text=text, interface=(sent, received))
    assert found.dropouts == (4, 5)
    assert json.loads(json.dumps(found.to_dict()))["dropouts"] == [4, 5]
    assert found.loss is None or 0 <= found.loss <= 1


def test_a_generator_that_stopped_early_or_failed_makes_an_incomplete_trial() -> None:
    output = parse_moongen_output(
        "[Device: id=0] RX: 0.01 (StdDev 0.00) Mpps, 5 (StdDev 0) Mbit/s (7 Mbit/s with framing), "
        "total 10000 packets with 640000 bytes (incl. CRC)\n"
        "[Device: id=0] TX: 0.01 (StdDev 0.00) Mpps, 5 (StdDev 0) Mbit/s (7 Mbit/s with framing), "
        "total 10000 packets with 640000 bytes (incl. CRC)\n"
    )
    found = figures(output, Histogram.of({1000: 500}), 1.0)
    assert verdict(found, 10, runtime=1).verdict is Verdict.VALID
    early = verdict(found, 10, runtime=30)
    assert early.verdict is Verdict.INCOMPLETE and "1 s instead of 30 s" in early.reason
    assert verdict(found, 10, runtime=1, exit_code=137).verdict is Verdict.INCOMPLETE


# -- each limit, from both sides -----------------------------------------------------------------------------


def exactly(**changed):
    """The figures of the trial that is as it should be, but for these."""
    return replace(measured(), **changed)


@pytest.mark.parametrize(
    ("seconds", "minutes"),
    [(None, 1), (0, 1), (0.5, 1), (59, 1), (60, 1), (60.001, 2), (61, 2), (120, 2), (121, 3), (3600, 60), (3661, 62)],
)
def test_the_margin_grows_with_each_minute_that_is_begun(seconds, minutes):
    assert in_flight_margin(300_000, seconds) == 64 * minutes
    assert in_flight_margin(300_000, seconds, Tolerances(in_flight_frames=7)) == 7 * minutes


@pytest.mark.parametrize(("sent", "margin"), [(0, 64), (6_400_000, 64), (6_499_999, 64), (6_500_000, 65), (10**8, 1000)])
def test_the_margin_is_the_larger_one_of_frames_and_share(sent, margin):
    assert in_flight_margin(sent) == in_flight_margin(sent, 60.0) == margin
    assert in_flight_margin(sent, None, Tolerances(in_flight_share=0.5)) == max(64, sent // 2)
    assert in_flight_margin(sent, None, Tolerances(in_flight_frames=0, in_flight_share=0)) == 0


def test_loss_is_not_below_zero_and_unknown_where_nothing_was_sent():
    assert (measured(1000, 999).lost, measured(1000, 999).loss) == (1, 0.001)
    assert (measured(1000, 1001).lost, measured(1000, 1001).loss, measured(1000, 1001).counter_mismatch) == (0, 0.0, False)
    nothing = measured(0, 0)
    assert (nothing.lost, nothing.loss, nothing.counter_mismatch, nothing.achieved_kpps) == (0, None, False, 0.0)
    cut_off = measured(text=sample.output()[:-100])
    assert (cut_off.lost, cut_off.loss, cut_off.counter_mismatch, cut_off.achieved_kpps) == (None, None, False, None)


def test_a_long_run_has_its_longer_margin_where_loss_is_told():
    output = parse_moongen_output(sample.output(1000, 1128, seconds=SECOND * 61))
    assert figures(output, HISTOGRAM, 61.0).lost == 0 and figures(output, HISTOGRAM, 60.0).lost is None
    assert figures(output, HISTOGRAM, 60.0, Tolerances(in_flight_frames=128)).lost == 0


@pytest.mark.parametrize(
    ("said", "runtime", "lines", "expected"),
    [(None, 30.0, 30, 30.0), (None, 30.0, 10, 12.5), (None, 2.0, 10, 2.0), (None, None, 10, None), ("9.250", 30.0, 30, 9.25),
     ("40.0", 30.0, 10, 40.0), ("9.5", None, 10, 9.5), ("0.0", 30.0, 30, 0.0)],
)  # fmt: skip
def test_seconds_are_those_that_the_program_said_else_the_runtime_else_what_its_lines_allow(said, runtime, lines, expected):
    text = sample.output(seconds=SECOND * lines)
    if said:
        text += f"[INFO]  Test frames: sent 300000 in {said} s, received 300000, 0 of them in a drain of 0.001 s\n"
    found = measured(text=text, seconds=runtime)
    assert found.seconds == (pytest.approx(expected) if expected else expected)
    assert found.achieved_kpps == (pytest.approx(300 / expected) if expected else None)


@pytest.mark.parametrize("seconds", [0, 0.0, -1.0])
def test_there_is_no_rate_over_no_time(seconds):
    assert measured(seconds=seconds).achieved_kpps is None
    assert measured(seconds=0.5).achieved_kpps == 600.0 and measured(seconds=1e-3).achieved_kpps == 300_000.0


def test_without_samples_or_a_histogram_there_is_no_latency():
    for histogram in (None, Histogram.of({})):
        found = measured(histogram=histogram)
        names = ("mean_ns", "std_ns", "max_ns", *PERCENTILES.values())
        assert [getattr(found, name) for name in names] == [None] * 9 and found.samples == 0
    assert measured(histogram=Histogram.of({})).complete and not measured(histogram=None).complete


def test_each_percentile_has_its_field():
    found = measured(histogram=Histogram.of(dict.fromkeys(range(1, 1001), 1)))
    assert (found.p25_ns, found.p50_ns, found.p75_ns, found.p95_ns, found.p99_ns, found.p999_ns) == (250, 500, 750, 950, 990, 999)
    assert (found.max_ns, found.mean_ns, found.std_ns) == (1000, 500.5, pytest.approx(288.8194360957494))


def test_what_the_interface_counted_is_told_as_sent_and_received():
    found = measured(interface=(300_001, 299_999))
    assert (found.interface_sent, found.interface_received) == (300_001, 299_999)
    assert (measured().interface_sent, measured().interface_received) == (None, None)
    assert (measured(interface=(0, 0)).interface_sent, measured(interface=(0, 0)).interface_received) == (0, 0)


def test_dropouts_are_counted_or_unknown():
    assert (measured(**lines(SECOND * 30)).dropout_seconds, measured(**lines(SECOND * 30)).dropouts) == (0, ())
    assert (measured(**lines(SILENT * 30)).dropout_seconds, measured(**lines(SILENT * 30)).dropouts) == (None, ())
    two = measured(**lines(SECOND, SILENT, SECOND * 2, SILENT, SECOND * 25))
    assert (two.dropout_seconds, two.dropouts) == (2, (2, 5))


@pytest.mark.parametrize("guests", [2, 3, 4, 5])
def test_guests_that_nobody_numbered_count_from_1(guests):
    output = parse_moongen_output(sample.of_guests(*[(60_000, 60_000)] * guests))
    found = figures(output, Histogram.of({5: 100 * guests}), 30.0)
    assert [guest.guest for guest in found.guests] == list(range(1, guests + 1)) and found.contradiction == ""
    assert figures(output, Histogram.of({5: 100 * guests}), 30.0, guests=range(1, guests + 1)) == found


def test_a_single_guest_in_the_output_is_none_to_compare():
    output = parse_moongen_output(sample.of_guests((60_000, 60_000)))
    assert figures(output, Histogram.of({5: 100}), 30.0).guests == ()


@pytest.mark.parametrize("numbers", [(1, 2), (1, 2, 3, 4)])
def test_other_guests_than_the_output_tells_of_have_no_figures(numbers):
    output = parse_moongen_output(sample.of_guests(*[(60_000, 60_000)] * 3))
    found = figures(output, Histogram.of({5: 300}), 30.0, guests=numbers)
    assert (found.guests, found.fairness) == ((), None)
    assert found.contradiction.startswith(f"the load went to {len(numbers)} guests, the output tells of 3")


def test_a_guest_has_the_rate_and_the_latency_that_can_be_told_of_it():
    output = parse_moongen_output(sample.of_guests((60_000, 60_000), (30_000, 30_065)))
    held = {2: Histogram.of(dict.fromkeys(range(1, 101), 1))}
    first, second = figures(output, Histogram.of({5: 200}), 30.0, guest_latencies=held).guests
    assert (first.achieved_kpps, second.achieved_kpps) == (2.0, 1.0)
    assert (first.mean_ns, first.max_ns, first.p25_ns) == (None, None, None)
    assert (second.mean_ns, second.max_ns, second.p25_ns, second.p999_ns) == (50.5, 100, 25, 100)
    assert (first.lost, first.loss, second.lost, second.loss) == (0, 0.0, None, None)
    assert figures(output, Histogram.of({5: 200}), 0.5).guests[0].achieved_kpps == 120.0
    for seconds in (None, 0.0, -1.0):
        assert figures(output, Histogram.of({5: 200}), seconds).guests[0].achieved_kpps is None


def test_a_margin_that_was_stated_holds_for_the_guests_too():
    output = parse_moongen_output(sample.of_guests((60_000, 60_000), (30_000, 30_065)))
    assert figures(output, None, 30.0).guest_mismatch == "received 30065 frames from guest2, but sent it only 30000"
    assert figures(output, None, 30.0, Tolerances(in_flight_frames=65)).guest_mismatch == ""


# -- what contradicts itself ---------------------------------------------------------------------------------


def told(count, average, samples=200, mean=1000.0):
    """How a line about samples and the summary of a histogram contradict each other."""
    line = f"Samples: {count}, Average: {average} ns, StdDev: 1.0 ns, Quartiles: 1.0/1.0/1.0 ns\n"
    summary = Summary(samples, mean, 1.0, 2000, (1000,) * len(PERCENTILES))
    return figures(parse_moongen_output(sample.output(samples=line)), summary, 30.0).contradiction


@pytest.mark.parametrize(
    ("printed", "mean", "agree"),
    [
        ("0.0", 0.051, True),
        ("0.0", 0.0511, False),
        ("1000.0", 1000.05, True),
        ("1000.0", 999.95, True),
        ("1000.0", 1000.06, False),
        ("1000.0", 999.94, False),
        ("1000000000.0", 1000000001.0, True),
        ("1000000000.0", 1000000001.1, False),
        ("-1000000000.0", -1000000001.0, True),
        ("nan", 1000.0, True),
        ("inf", 1000.0, True),
    ],
)
def test_a_printed_mean_agrees_to_the_decimal_that_is_printed(printed, mean, agree):
    assert (told(200, printed, mean=mean) == "") is agree


@pytest.mark.parametrize(
    ("printed", "mean", "unit"),
    [
        ("500.0", 1.0, "µs"), ("499.9", 1.0, None), ("2000.0", 1.0, "µs"), ("2000.1", 1.0, None),
        ("500000.0", 1.0, "ms"), ("499999.0", 1.0, None), ("2000000.0", 1.0, "ms"), ("2000001.0", 1.0, None),
        ("5.0", 10_000.0, "ps"), ("4.9", 10_000.0, None), ("20.0", 10_000.0, "ps"), ("20.1", 10_000.0, None),
    ],
)  # fmt: skip
def test_a_mean_is_in_another_unit_from_half_to_twice_as_large(printed, mean, unit):
    means = f"a mean of {printed} ns in the output, of {mean:g} in the histogram"
    says = f"{means}, which must be in {unit}: units are mixed" if unit else f"{means}: not of one run"
    assert told(200, printed, mean=mean) == says


def test_how_samples_contradict_each_other_is_said_in_full():
    assert told(201, "1000.0") == "the output tells of 201 latency samples, the histogram holds 200: not of one run"
    assert told(199, "1000.0") == "the output tells of 199 latency samples, the histogram holds 200: not of one run"
    assert told(200, "7.0", mean=0.0) == "a mean of 7.0 ns in the output, of 0 in the histogram: the histogram is not in ns"
    line = "Samples: 3, Average: 7.0 ns, StdDev: 1.0 ns, Quartiles: 1.0/1.0/1.0 ns\n"
    empty = measured(text=sample.output(samples=line), histogram=Histogram.of({}))
    assert empty.contradiction == "the output tells of 3 latency samples, the histogram holds 0: not of one run"
    assert measured(text=sample.output(samples=line), histogram=None).contradiction == ""


def test_a_histogram_that_cannot_be_read_is_what_contradicts_whatever_else_does():
    output = parse_moongen_output(NOT_OF_ONE_RUN)
    assert figures(output, None, 30.0, unreadable="h.csv:3: broken").contradiction == "h.csv:3: broken"
    assert figures(output, HISTOGRAM, 30.0, unreadable="g.csv:3: broken").contradiction == "g.csv:3: broken"


# -- verdicts at their limits --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "offered", "expected"),
    [
        ({"achieved_kpps": 110.0}, 100, "valid"),
        ({"achieved_kpps": 110.1}, 100, "disturbed"),
        ({"achieved_kpps": 99.0}, 100, "valid"),
        ({"achieved_kpps": 98.9}, 100, "under-sent"),
        ({"achieved_kpps": 0.0}, 0, "valid"),
        ({"achieved_kpps": None}, 0, "incomplete"),
        ({"samples": 99}, 10, "too-few-samples"),
        ({"samples": 100}, 10, "valid"),
        ({"samples": 0, "received": 2999}, 10, "no-reflection"),
        ({"samples": 0, "received": 3000}, 10, "too-few-samples"),
        ({"samples": 100, "received": 1}, 10, "valid"),
        ({"samples": 100, "received": 0}, 10, "no-reflection"),
        ({"samples": 1, "received": 2}, 10, "too-few-samples"),
        ({"dropouts": (3,)}, 10, "disturbed"),
        ({"seconds": 29.4}, 10, "valid"),
        ({"seconds": 29.39}, 10, "incomplete"),
        ({"seconds": None}, 10, "valid"),
        ({"sent": None}, 10, "incomplete"),
        ({"received": None}, 10, "incomplete"),
        ({"guest_mismatch": "they differ"}, 10, "counter-mismatch"),
        ({"contradiction": "not of one run"}, 10, "incomplete"),
        ({"complete": False}, 10, "incomplete"),
        ({"errors": ("it died",)}, 10, "incomplete"),
        ({"interface_sent": 300_064}, 10, "valid"),
        ({"interface_sent": 300_065}, 10, "counter-mismatch"),
        ({"interface_sent": 299_936}, 10, "valid"),
        ({"interface_sent": 299_935}, 10, "counter-mismatch"),
        ({"interface_received": 299_936}, 10, "valid"),
        ({"interface_received": 299_935}, 10, "counter-mismatch"),
        ({"interface_received": 300_065, "lost": 0}, 10, "valid"),
        ({"interface_received": 300_065, "lost": 1}, 10, "counter-mismatch"),
        ({"interface_received": 300_064, "lost": 1}, 10, "valid"),
        ({"received": 100, "lost": 299_900, "interface_received": 2999}, 10, "counter-mismatch"),
        ({"received": 100, "lost": 299_900, "interface_received": 2999, "samples": 0}, 10, "no-reflection"),
        ({"received": 100, "lost": 299_900, "interface_received": 3000, "samples": 0}, 10, "counter-mismatch"),
    ],
)
def test_a_verdict_changes_exactly_at_its_limit(changed, offered, expected):
    assert verdict(exactly(**changed), offered, runtime=30).verdict == expected


def test_tolerances_that_were_stated_move_the_limits_of_the_interface():
    found = exactly(interface_sent=300_065)
    assert verdict(found, 10, tolerances=Tolerances(in_flight_frames=65)).verdict is Verdict.VALID
    little = exactly(received=100, lost=299_900, interface_received=2999, samples=0)
    stated = Tolerances(no_reflection=0.005)
    assert verdict(little, 10, tolerances=stated).verdict is Verdict.COUNTER_MISMATCH
    for most in (2, 3, 300):
        assert verdict(exactly(dropouts=(3, 4)), 10, tolerances=Tolerances(dropout_seconds=most)).verdict is Verdict.VALID
    assert verdict(exactly(dropouts=(3, 4)), 10, tolerances=Tolerances(dropout_seconds=1)).verdict is Verdict.DISTURBED


@pytest.mark.parametrize(
    ("changed", "others", "says"),
    [
        ({"errors": ("it died", "so did this")}, {}, "a task failed: it died"),
        ({"sent": None}, {}, "the output has no final totals"),
        ({"contradiction": "not of one run", "complete": False}, {}, "not of one run"),
        ({"complete": False}, {}, "the output or the histogram is missing or cut off"),
        ({"sent": 0}, {}, "nothing was sent"),
        ({}, {"exit_code": -9}, "the generator ended with exit code -9"),
        ({"seconds": 12.25}, {"runtime": 30.5}, "frames were sent for 12.25 s instead of 30.5 s"),
        ({"achieved_kpps": None}, {}, "it is not known for how long frames were sent"),
        ({"samples": 42}, {}, "42 latency samples, 100 are needed"),
        ({"received": 0}, {}, "of 300000 frames sent, 0 came back"),
        ({"counter_mismatch": True, "received": 400_000}, {}, "received 400000 frames, but sent only 300000"),
        ({"counter_mismatch": True, "received": 0}, {}, "received 0 frames, but sent only 300000"),
        ({"interface_sent": 7}, {}, "the generator claims 300000 frames sent, the interface sent 7"),
        ({"interface_received": 7}, {}, "the generator claims 300000 frames received, the interface received 7"),
        (
            {"received": 0, "lost": 1, "interface_received": 4000},
            {},
            "the generator claims 0 frames received, the interface received 4000",
        ),
        ({"guest_mismatch": "they differ"}, {}, "they differ"),
        ({"dropouts": (3, 4, 9)}, {}, "nothing was received in second 3-4, 9, though frames were sent"),
        ({"achieved_kpps": 11.5}, {}, "sent 11.5 kpps, offered 10 kpps: another load than the one that it stands for"),
        ({"achieved_kpps": 1234.5678}, {"offered_kpps": 2345.6789}, "sent 1234.57 kpps, offered 2345.68 kpps"),
        ({}, {"disturbed": "somebody logged in"}, "somebody logged in"),
        ({}, {"missing": "guest3"}, "guest3"),
        ({"achieved_kpps": 5.0}, {"missing": "guest3"}, "guest3; sent 5 kpps, offered 10 kpps"),
    ],
)  # fmt: skip
def test_a_reason_is_said_in_full(changed, others, says):
    assert verdict(exactly(**changed), **{"offered_kpps": 10, **others}).reason == says


#: What can be wrong with a trial, in the order of how little its figures can be trusted.
WRONG = [
    ({"errors": ("it died",)}, {}, Verdict.INCOMPLETE),
    ({"received": None}, {}, Verdict.INCOMPLETE),
    ({"contradiction": "not of one run"}, {}, Verdict.INCOMPLETE),
    ({"complete": False}, {}, Verdict.INCOMPLETE),
    ({"sent": 0}, {}, Verdict.INCOMPLETE),
    ({}, {"exit_code": 1}, Verdict.INCOMPLETE),
    ({"seconds": 1.0}, {}, Verdict.INCOMPLETE),
    ({}, {"disturbed": "somebody logged in"}, Verdict.DISTURBED),
    ({"counter_mismatch": True}, {}, Verdict.COUNTER_MISMATCH),
    ({"interface_sent": 1}, {}, Verdict.COUNTER_MISMATCH),
    ({"guest_mismatch": "they differ"}, {}, Verdict.COUNTER_MISMATCH),
    ({"received": 0}, {}, Verdict.NO_REFLECTION),
    ({"dropouts": (3,)}, {}, Verdict.DISTURBED),
    ({"samples": 5}, {}, Verdict.TOO_FEW_SAMPLES),
    ({"achieved_kpps": None}, {}, Verdict.INCOMPLETE),
    ({"achieved_kpps": 20.0}, {}, Verdict.DISTURBED),
    ({}, {"missing": "guest3"}, Verdict.MISSING_GUESTS),
    ({"achieved_kpps": 5.0}, {}, Verdict.UNDER_SENT),
]


@pytest.mark.parametrize("first", range(len(WRONG) - 1))
def test_of_several_things_that_are_wrong_the_one_that_spoils_most_is_the_verdict(first):
    changed, others, expected = WRONG[first]
    alone = verdict(exactly(**changed), 10, runtime=30, **others)
    assert alone.verdict is expected
    for later, said, _ in WRONG[first + 1 :]:
        if {*later}.isdisjoint(changed):
            found = verdict(exactly(**later, **changed), 10, runtime=30, **{**said, **others})
            assert found.verdict is expected
            assert found.reason.startswith(alone.reason) or "received" in later, "which stands in the reasons of others"


def test_an_exit_code_says_nothing_where_there_are_no_samples():
    assert verdict(exactly(samples=0), 10, exit_code=1).verdict is Verdict.TOO_FEW_SAMPLES
    assert verdict(exactly(samples=1), 10, exit_code=1).verdict is Verdict.INCOMPLETE


def test_without_a_runtime_nothing_stopped_early():
    assert verdict(exactly(seconds=1.0), 10).verdict is Verdict.VALID
    assert verdict(exactly(seconds=1.0), 10, runtime=0).verdict is Verdict.VALID


def test_figures_and_judgements_are_not_changed_by_anybody():
    for what, name in ((measured(), "sent"), (Judgement(Verdict.VALID), "reason")):
        with pytest.raises(FrozenInstanceError):
            setattr(what, name, None)
    assert Judgement(Verdict.VALID).reason == ""


def test_the_json_of_a_trial_has_every_figure_under_its_name_and_lists_for_tuples():
    found = exactly(errors=("a", "b"), dropouts=(2, 5))
    written = found.to_dict()
    assert list(written) == [field.name for field in fields(found)]
    assert (written["errors"], written["dropouts"], written["guests"]) == (["a", "b"], [2, 5], [])
    assert {name for name, value in written.items() if value != getattr(found, name)} == {"errors", "dropouts", "guests"}


def test_what_could_be_mistaken_for_each_other_is_said_by_name():
    output = parse_moongen_output(sample.output())
    with pytest.raises(TypeError):
        figures(output, HISTOGRAM, 30.0, Tolerances(), (300_000, 300_000))
    with pytest.raises(TypeError):
        verdict(measured(), 10, 30)
