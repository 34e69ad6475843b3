import json
import math

import pytest
import sample_output as sample
from hypothesis import given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results.figures import Figures, Tolerances, figures, in_flight_margin, verdict
from autotest.results.histogram import Histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.verdicts import Verdict

HISTOGRAM = Histogram.of({1000 + value: 1 for value in range(200)})


def measured(sent=300_000, received=300_000, histogram=HISTOGRAM, seconds=30.0, text=""):
    return figures(parse_moongen_output(text or sample.output(sent, received)), histogram, seconds)


def test_loss_and_rate_come_from_totals():
    found = measured(631407502, 585731518)
    assert found.loss == 45675984 / 631407502
    assert found.achieved_kpps == pytest.approx(21046.917)
    assert (found.samples, found.p50_ns, found.p99_ns, found.p999_ns, found.max_ns) == (200, 1099, 1197, 1199, 1199)
    assert math.isclose(found.mean_ns, 1099.5)


def test_one_frame_in_ten_lost_reads_ten_percent():
    assert measured(300_000, 270_000).loss == 0.1


def test_more_received_than_sent_is_no_negative_loss():
    assert measured(1000, 1064).loss == 0
    found = measured(1000, 1065)
    assert found.counter_mismatch and found.loss is None and found.lost is None
    assert in_flight_margin(10**9) == 10**4


@pytest.mark.parametrize(
    ("arguments", "offered", "expected"),
    [
        ({}, 10, Verdict.VALID),
        ({"sent": 297_000, "received": 0}, 10, Verdict.NO_REFLECTION),
        ({"sent": 297_000, "received": 297_000}, 10, Verdict.VALID),
        ({"sent": 296_900, "received": 296_000}, 10, Verdict.UNDER_SENT),
        ({"received": 400_000}, 10, Verdict.COUNTER_MISMATCH),
        ({"received": 20, "histogram": Histogram.of({})}, 10, Verdict.NO_REFLECTION),
        ({"received": 290_000, "histogram": Histogram.of({})}, 10, Verdict.TOO_FEW_SAMPLES),
        ({"histogram": Histogram.of({5: 99})}, 10, Verdict.TOO_FEW_SAMPLES),
        ({"histogram": Histogram.of({5: 100})}, 10, Verdict.VALID),
        ({"histogram": None}, 10, Verdict.INCOMPLETE),
        ({"seconds": None}, 10, Verdict.INCOMPLETE),
        ({"sent": 0, "received": 0}, 10, Verdict.INCOMPLETE),
        ({"text": sample.output()[:-100]}, 10, Verdict.INCOMPLETE),
        ({"text": "[FATAL] Lua error in task timerSlave\n" + sample.output()}, 10, Verdict.INCOMPLETE),
        ({}, 0, Verdict.VALID),
    ],
)
def test_the_verdict_follows_from_the_figures(arguments, offered, expected):
    judgement = verdict(measured(**arguments), offered)
    assert judgement.verdict is expected
    assert bool(judgement.reason) == (expected is not Verdict.VALID)


def test_a_disturbed_trial_is_disturbed_whatever_its_figures():
    judgement = verdict(measured(296_000, 0), 10, disturbed="link went down")
    assert (judgement.verdict, judgement.reason) == (Verdict.DISTURBED, "link went down")


def test_tolerances_can_be_stated():
    assert verdict(measured(290_000, 290_000), 10, tolerances=Tolerances(under_sent=0.05)).verdict is Verdict.VALID


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_figures_survive_json_and_loss_is_a_share(sent, received):
    found = measured(sent, received)
    assert Figures.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    assert found.loss is None or 0 <= found.loss <= 1


def test_figures_that_lack_something_are_refused():
    with pytest.raises(ResultsError, match="without sent"):
        Figures.from_dict({})


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
