import json
import math

import pytest
import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.results.figures import PERCENTILES, figures, in_flight_margin, verdict
from autotest.results.histogram import Histogram, parse_histogram
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
