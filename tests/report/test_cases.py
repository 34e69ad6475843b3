from dataclasses import replace
from pathlib import Path

import pytest
import sample_output as sample

from autotest.report.cases import differing, group_cases, shown
from autotest.report.listing import _place
from autotest.report.metrics import METRICS
from autotest.report.trials import Trial
from autotest.results.figures import figures
from autotest.results.histogram import Histogram, parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict

SET_UP = {"machine": "pcvm", "interface": "bridge", "qemu": "normal", "vhost": True, "rate": 10, "size": 60, "runtime": 30}


def trial(repetition: int, verdict: Verdict = Verdict.VALID, sent: int = 300_000, lost: int = 0, **parameters) -> Trial:
    histogram = parse_histogram(sample.histogram(200, 10_000 + 1000 * repetition).encode(), "x")
    found = figures(parse_moongen_output(sample.output(sent, sent - lost)), histogram, 30.0)
    return Trial(Path("results"), TrialName("case", repetition), SET_UP | parameters, verdict, figures=found)


def test_the_repetitions_of_a_case_stand_together_and_the_cases_of_a_set_up_by_load():
    mixed = [trial(0, rate=40), trial(0, interface="macvtap"), trial(0, rate=10), trial(1, rate=40)]
    cases = group_cases(mixed)
    assert [(case.parameters["interface"], case.load, len(case.trials)) for case in cases] == [
        ("bridge", 10, 1),
        ("bridge", 40, 2),
        ("macvtap", 10, 1),
    ]
    assert cases[0].set_up == cases[1].set_up != cases[2].set_up


def test_only_valid_repetitions_are_used_where_there_are_any():
    others = [verdict for verdict in Verdict if verdict is not Verdict.VALID]
    (case,) = group_cases([trial(0), trial(1), *(trial(2 + number, verdict) for number, verdict in enumerate(others))])
    assert [used.name.repetition for used in case.used] == [0, 1]
    assert (case.under_sent, case.for_want, case.samples) == (False, False, 400)
    assert case.values(METRICS["p50"]) == [pytest.approx(10.099, abs=0.001), pytest.approx(11.099, abs=0.001)]


def test_under_sent_repetitions_are_used_for_want_of_valid_ones_and_no_others():
    (case,) = group_cases([trial(0, Verdict.UNDER_SENT), trial(1, Verdict.DISTURBED), trial(2, Verdict.UNDER_SENT)])
    assert [used.name.repetition for used in case.used] == [0, 2]
    assert case.under_sent and case.for_want
    (nothing,) = group_cases([trial(0, Verdict.DISTURBED)])
    assert (nothing.used, nothing.for_want, nothing.samples, nothing.estimate(METRICS["p50"])) == ((), False, 0, None)


def test_what_the_user_accepts_now_or_accepted_when_it_was_measured_is_used_like_valid():
    trials = [trial(0), trial(1, Verdict.UNDER_SENT), replace(trial(2, Verdict.DISTURBED), accepted=True)]
    (case,) = group_cases(trials)
    assert [used.name.repetition for used in case.used] == [0, 2]
    (case,) = group_cases(trials, accept=[Verdict.UNDER_SENT])
    assert [used.name.repetition for used in case.used] == [0, 1, 2]
    assert case.under_sent and not case.for_want


def test_pooled_loss_weighs_by_frames_and_mean_loss_by_repetitions():
    (case,) = group_cases([trial(0, sent=300_000, lost=30_000), trial(1, sent=100_000, lost=0)])
    found = case.estimate(METRICS["loss"])
    assert (found.mean, found.pooled, found.repetitions) == (pytest.approx(5), pytest.approx(7.5), 2)
    assert case.estimate(METRICS["p50"]).pooled is None


def test_a_repetition_without_a_figure_does_not_count_for_it():
    without = trial(1)
    without = replace(without, figures=replace(without.figures, p50_ns=None, loss=None, lost=None))
    (case,) = group_cases([trial(0, lost=3000), without])
    assert case.estimate(METRICS["p50"]).repetitions == 1
    assert case.estimate(METRICS["loss"]).pooled == pytest.approx(1)


def test_verdicts_are_counted_and_parameters_shown_for_people():
    (case,) = group_cases([trial(0), trial(1), trial(2, Verdict.DISTURBED)])
    assert case.verdicts() == "2 valid, 1 disturbed"
    (case,) = group_cases([trial(0), trial(1)])
    assert case.verdicts() == "valid"
    assert shown(SET_UP) == "pcvm, bridge, QEMU normal, vhost on, 10 kpps, 60 B, 30 s"
    assert shown(SET_UP, ["rate", "nothing"]) == "10 kpps"


def test_the_parameters_that_differ_are_named_the_load_apart():
    host = {"machine": "host", "rate": 20, "size": 60}
    assert differing([SET_UP, SET_UP | {"rate": 20, "vhost": False}]) == ["vhost"]
    assert differing([SET_UP, host]) == ["machine", "interface", "qemu", "vhost", "runtime"]
    assert differing([SET_UP]) == []


def test_an_accepted_repetition_without_samples_adds_none_to_the_histogram(tmp_path):
    """It may have no histogram at all: the program writes none where nothing comes back."""
    whole = replace(trial(0), directory=tmp_path)
    whole.path("histogram").write_text(sample.histogram(200))
    found = figures(parse_moongen_output(sample.output(300_000, 0)), Histogram.of({}), 30.0)
    empty = replace(trial(1, Verdict.NO_REFLECTION), directory=tmp_path, figures=found)
    (case,) = group_cases([whole, empty], accept=[Verdict.NO_REFLECTION])
    assert len(case.used) == 2 and case.histogram().samples == 200


def test_set_ups_stand_in_the_order_of_their_numbers_of_guests() -> None:
    def place(guests: str) -> tuple[int, str, int, int]:
        return _place((f"pcvm_bridge_q_vhostoff_ioregionfdoff{guests}_xdp_10kpps_60B_1s", 0), None)

    names = ["", "_guests2", "_guests8", "_guests40"]
    assert sorted(names, key=place) == names
