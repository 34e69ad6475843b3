import random
from dataclasses import replace
from pathlib import Path

import measured
import pytest
import sample_output as sample
from junitparser import JUnitXml
from scipy import stats

from autotest.cli.program import main
from autotest.errors import UsageError
from autotest.report.cases import group_cases
from autotest.report.compare import (
    Outcome,
    Threshold,
    compare,
    findings,
    match,
    parse_metrics,
    parse_thresholds,
)
from autotest.report.compare_text import checks, describe
from autotest.report.metrics import METRICS
from autotest.report.trials import Trial
from autotest.results.figures import figures
from autotest.results.histogram import parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict

BASE = figures(parse_moongen_output(sample.output()), parse_histogram(sample.histogram().encode(), "x"), 30.0)
SET_UP = {"machine": "pcvm", "interface": "bridge", "vhost": False, "rate": 10, "size": 60}


def trials(side: str, values, metric: str = "p50_ns", verdict: Verdict = Verdict.VALID, **parameters) -> list[Trial]:
    """One trial for each value, of the metric or, where it is a dictionary, of several."""
    found = []
    for number, value in enumerate(values):
        changed = replace(BASE, **(value if isinstance(value, dict) else {metric: value}))
        name = TrialName("host_pnic_xdp_10kpps_60B_30s", number)
        label = f"{side} {sorted(parameters.items())} {verdict} {number}"
        found.append(Trial(Path(side), name, SET_UP | parameters, verdict, figures=changed, checksum=label))
    return found


def compared(a: list[Trial], b: list[Trial], *metrics: str, alpha: float = 0.05, **thresholds: Threshold):
    matching = match(group_cases(a), group_cases(b))
    return compare(matching, [METRICS[name] for name in metrics or ("p50",)], alpha, thresholds)


def outcome(a: list[Trial], b: list[Trial], *metrics: str, **options) -> str:
    (comparison,) = compared(a, b, *metrics, **options).comparisons
    return str(comparison.outcome)


EIGHT = [100_000 + 500 * number for number in range(8)]
SLOWER = [value * 1.2 for value in EIGHT]


# --- what comes out ----------------------------------------------------------------------------------------------------


def test_a_larger_median_is_a_regression_and_a_larger_rate_an_improvement():
    assert outcome(trials("a", EIGHT), trials("b", SLOWER)) == "regression"
    assert outcome(trials("a", SLOWER), trials("b", EIGHT)) == "improvement"
    a, b = trials("a", EIGHT, "achieved_kpps"), trials("b", SLOWER, "achieved_kpps")
    assert outcome(a, b, "achieved") == "improvement"
    assert outcome(b, a, "achieved") == "regression"


def test_a_comparison_tells_means_difference_interval_effect_and_p():
    (found,) = compared(trials("a", EIGHT), trials("b", SLOWER)).comparisons
    assert (found.a.mean, found.b.mean) == (pytest.approx(101.75), pytest.approx(122.1))
    assert found.difference == pytest.approx(20.35) and found.relative == pytest.approx(0.2)
    low, high = found.interval
    assert 18.5 < low < 20.35 < high < 22.5
    assert (found.effect, found.repetitions) == (1, (8, 8))
    assert found.test.p == found.p == pytest.approx(2 / 12870)


def test_a_shift_of_a_fifth_is_found_among_many_comparisons_with_eight_repetitions_and_two_percent_of_noise():
    chance, tries, false = random.Random(4), 20, 0
    for _ in range(tries):
        a, b = [], []
        for rate in range(1, 41):
            shift = 1.2 if rate == 17 else 1
            a += trials("a", [chance.gauss(100_000, 2000) for _ in range(8)], rate=rate)
            b += trials("b", [shift * chance.gauss(100_000, 2000) for _ in range(8)], rate=rate)
        found = {comparison.pair.a.load: comparison.outcome for comparison in compared(a, b).comparisons}
        assert found.pop(17) == "regression"
        false += set(found.values()) != {"no difference"}
    assert false <= stats.binom.ppf(0.9999, tries, 0.05)


def test_the_same_case_measured_twice_shows_no_difference_in_19_of_20_tries():
    chance = random.Random(20)
    tries, differing = 400, 0
    for _ in range(tries):
        a, b = (trials(side, [measurement(chance) for _ in range(8)]) for side in "ab")
        found = compared(a, b, "achieved", "loss", "p50", "p99")
        differing += found.count(Outcome.NO_DIFFERENCE) < 4
    assert differing <= stats.binom.ppf(0.9999, tries, 0.05)
    assert differing > 0, "a test that never finds anything does not show this"


def measurement(chance: random.Random) -> dict[str, float]:
    """A repetition as it really comes: skewed latencies that hang together, loss mostly 0, a rate with few values."""
    p50 = 90_000 + chance.lognormvariate(9, 0.5)
    loss = max(0, round(chance.gauss(-1, 1), 1)) / 100
    return {
        "p50_ns": p50,
        "p99_ns": p50 * (1.5 + chance.random() / 2),
        "loss": loss,
        "achieved_kpps": 10 - chance.randrange(3) / 1000,
    }


def test_equal_values_are_no_difference_with_p_1():
    (found,) = compared(trials("a", [0.0] * 5, "loss"), trials("b", [0.0] * 5, "loss"), "loss").comparisons
    assert (found.outcome, found.p, found.difference, found.effect, found.interval) == ("no difference", 1, 0, 0, None)


def test_a_row_of_the_table_says_it_all():
    (row,) = [line for line in describe(compared(trials("a", EIGHT), trials("b", SLOWER))).splitlines() if line.startswith("p50")]
    cells = row.split()
    assert cells[:6] == ["p50", "[µs]", "101.8", "8", "122.1", "8"] and cells[6] in ("+20.3", "+20.4")
    assert cells[7][0] == "±" and 1.3 < float(cells[7][1:]) < 2
    assert cells[8:] == ["+20.0", "+1.00", "0.0002", "regression"]


def test_values_that_overlap_are_no_difference():
    assert outcome(trials("a", EIGHT), trials("b", EIGHT[::-1])) == "no difference"


# --- too few repetitions -----------------------------------------------------------------------------------------------


def test_two_repetitions_are_too_few_however_large_the_difference_and_it_is_shown():
    result = compared(trials("a", [0.0, 0.0], "loss"), trials("b", [0.12, 0.12], "loss"), "loss")
    (found,) = result.comparisons
    assert (found.outcome, found.p, found.interval) == ("too few repetitions", None, None)
    assert (found.difference, found.effect) == (pytest.approx(12), 1)
    text = describe(result)
    assert "Too few repetitions: with 2 in A and 2 in B, p is never below 0.33." in text
    assert "takes 4 on each side" in text


def test_repetitions_that_are_too_few_for_so_many_comparisons_are_too_few():
    def both(cases: int):
        values = [("a", EIGHT[:4]), ("b", SLOWER[:4])]
        return compared(*([trial for rate in range(cases) for trial in trials(side, v, rate=rate)] for side, v in values))

    assert both(1).count(Outcome.REGRESSION) == 1
    assert both(40).count(Outcome.TOO_FEW) == 40
    assert f"Alpha 0.05 takes {both(40).repetitions_needed()} on each side for 40 comparisons, 4 for a single" in describe(
        both(40)
    )
    assert both(40).repetitions_needed() == 7


def test_comparisons_with_too_few_repetitions_do_not_weigh_on_those_with_enough():
    few = [trial for rate in range(100) for trial in trials("a", EIGHT[:2], rate=rate)]
    few_b = [trial for rate in range(100) for trial in trials("b", SLOWER[:2], rate=rate)]
    result = compared(few + trials("a", EIGHT[:4], rate=200), few_b + trials("b", SLOWER[:4], rate=200))
    assert (result.count(Outcome.REGRESSION), result.count(Outcome.TOO_FEW), result.counted) == (1, 100, 1)


def test_a_figure_that_no_repetition_of_a_side_has_is_too_few():
    (found,) = compared(trials("a", EIGHT), trials("b", [None] * 8)).comparisons
    assert (found.outcome, found.b, found.difference) == ("too few repetitions", None, None)


# --- thresholds --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("threshold", "expected"),
    [
        (Threshold(0.19, relative=True), "regression"),
        (Threshold(0.21, relative=True), "within threshold"),
        (Threshold(20), "regression"),
        (Threshold(21), "within threshold"),
    ],
)
def test_only_a_difference_beyond_the_threshold_is_a_regression(threshold, expected):
    assert outcome(trials("a", EIGHT), trials("b", SLOWER), p50=threshold) == expected


def test_any_loss_is_beyond_a_relative_threshold_where_there_was_none():
    a, b = trials("a", [0.0] * 8, "loss"), trials("b", [0.001 + number / 1e5 for number in range(8)], "loss")
    assert outcome(a, b, "loss", loss=Threshold(0.5, relative=True)) == "regression"
    assert outcome(a, b, "loss", loss=Threshold(0.5)) == "within threshold"


def test_an_outlier_that_turns_the_mean_against_the_ranks_is_no_improvement():
    slower_but_one = [10_000_000, *EIGHT[1:]]
    (found,) = compared(trials("a", slower_but_one), trials("b", [value * 1.2 for value in slower_but_one[1:]])).comparisons
    assert found.difference < 0 < found.effect
    assert found.p < 0.05 and found.outcome == "within threshold"


# --- under-sent --------------------------------------------------------------------------------------------------------


def test_of_a_case_that_is_under_sent_on_one_side_only_rates_are_compared():
    a = trials("a", [{"achieved_kpps": 10.0}] * 8)
    b = trials("b", [{"achieved_kpps": 8.0 + number / 100} for number in range(8)], verdict=Verdict.UNDER_SENT)
    result = compared(a, b, "achieved", "loss", "p50")
    assert [str(found.outcome) for found in result.comparisons] == ["regression", "not comparable", "not comparable"]
    assert findings(result.matching.pairs[0]) == ["valid in A, under-sent in B"]
    assert "! valid in A, under-sent in B" in describe(result)


def test_under_sent_on_both_sides_is_compared_and_said():
    a = trials("a", EIGHT, verdict=Verdict.UNDER_SENT)
    b = trials("b", SLOWER, verdict=Verdict.UNDER_SENT)
    assert outcome(a, b) == "regression"
    assert "under-sent in A and in B" in describe(compared(a, b))


def test_a_sender_that_fails_in_every_other_trial_is_a_regression_of_the_rate():
    steady = [{"achieved_kpps": 10 - number / 1e6} for number in range(8)]
    a = trials("a", steady)
    b = trials("b", steady[:3]) + trials(
        "b", [{"achieved_kpps": 7.0 + number} for number in range(5)], verdict=Verdict.UNDER_SENT
    )
    rate, median = compared(a, b, "achieved", "p50").comparisons
    assert (rate.repetitions, median.repetitions) == ((8, 8), (8, 3))
    assert rate.difference < -0.5
    assert findings(rate.pair) == ["under-sent: 0 of 8 trials in A, 5 of 8 in B"]


def test_accepted_under_sent_trials_are_compared_like_valid_ones():
    a, b = trials("a", EIGHT), trials("b", SLOWER, verdict=Verdict.UNDER_SENT)
    accept = [Verdict.UNDER_SENT]
    for one, other, expected in ((a, b, "regression"), (b, a, "improvement")):
        (found,) = compare(match(group_cases(one, accept), group_cases(other, accept)), [METRICS["p50"]]).comparisons
        assert found.outcome == expected


def test_a_case_without_usable_trials_on_one_side_is_named():
    a, b = trials("a", EIGHT), trials("b", SLOWER, verdict=Verdict.NO_REFLECTION)
    result = compared(a, b)
    assert findings(result.matching.pairs[0]) == ["valid in A, nothing usable in B: no-reflection"]
    assert result.comparisons[0].outcome == "too few repetitions"


# --- what belongs together ---------------------------------------------------------------------------------------------


def test_trials_that_do_not_count_are_named_by_side_and_verdict():
    disturbed = [replace(trial, verdict=Verdict.DISTURBED) for trial in trials("b", EIGHT)[:2]]
    result = compared(trials("a", EIGHT), [*disturbed, *trials("b", SLOWER)[2:]])
    assert findings(result.matching.pairs[0]) == ["left out: 2 disturbed in B"]
    assert result.comparisons[0].repetitions == (8, 6)


def test_a_case_that_is_usable_on_no_side_is_named():
    sides = [trials(side, EIGHT, verdict=Verdict.DISTURBED) for side in ("a", "b")]
    result = compared(*sides)
    assert findings(result.matching.pairs[0]) == ["nothing usable in A: disturbed, nor in B: disturbed"]
    assert "Too few repetitions: with" not in describe(result)  # no number of them would help


def test_copies_of_a_trial_that_does_not_count_are_no_comparison_either():
    copied = [*trials("a", EIGHT), *trials("a", EIGHT, verdict=Verdict.DISTURBED, rate=20)]
    with pytest.raises(UsageError, match="A and B are the same trials"):
        match(group_cases(copied), group_cases(copied))


def test_what_was_not_shown_is_not_called_equal_and_one_is_no_plural():
    text = describe(compared(trials("a", EIGHT), trials("b", EIGHT)))
    assert text.endswith("which is no proof; the CI says how large it may be.\n1 comparison of 1 test case: 1 no difference\n")
    assert "no proof" not in describe(compared(trials("a", EIGHT), trials("b", SLOWER)))


def test_a_parameter_with_one_value_on_each_side_is_what_is_compared():
    a = trials("a", EIGHT, vhost=False) + trials("a", EIGHT, vhost=True)
    b = trials("b", EIGHT, vhost=False, interface="macvtap") + trials("b", EIGHT, vhost=True, interface="macvtap")
    matching = match(group_cases(a), group_cases(b))
    assert matching.apart == {"interface": ("bridge", "macvtap")}
    assert [(pair.a.parameters["vhost"], pair.b.parameters["vhost"]) for pair in matching.pairs] == [(False, False), (True, True)]
    assert "interface" not in matching.pairs[0].parameters


def test_a_parameter_that_one_side_has_not_is_what_is_compared_too():
    without = {key: value for key, value in SET_UP.items() if key != "vhost"} | {"machine": "host"}
    a = [replace(trial, parameters=without) for trial in trials("a", EIGHT)]
    matching = match(group_cases(a), group_cases(trials("b", EIGHT)))
    assert matching.apart == {"machine": ("host", "pcvm"), "vhost": (None, False)}
    assert "vhost: none in A, vhost off in B" in describe(compare(matching, [METRICS["p50"]]))


def test_cases_without_a_partner_are_listed():
    a = [trial for rate in (10, 20, 30) for trial in trials("a", EIGHT, rate=rate)]
    b = [trial for rate in (20, 30, *range(100, 120)) for trial in trials("b", EIGHT, rate=rate)]
    result = compared(a, b)
    assert [case.load for case in result.matching.only_a] == [10]
    text = describe(result)
    assert "only in A: 1 test case\n  pcvm, bridge, vhost off, 10 kpps, 60 B\n" in text
    assert "only in B: 20 test cases\n" in text and "109 kpps" in text and "110 kpps" not in text and "and 10 more" in text


def test_where_nothing_belongs_together_the_error_names_the_parameter_to_select():
    a = trials("a", EIGHT, interface="bridge") + trials("a", EIGHT, interface="macvtap")
    b = trials("b", EIGHT, interface="vfio")
    with pytest.raises(UsageError, match=r"(?s)interface: bridge, macvtap in A, vfio in B.*select one on each side"):
        match(group_cases(a), group_cases(b))
    crossed = trials("b", EIGHT, interface="bridge", rate=20) + trials("b", EIGHT, interface="macvtap", rate=10)
    with pytest.raises(UsageError, match="not in the same combinations"):
        match(group_cases(trials("a", EIGHT) + trials("a", EIGHT, interface="macvtap", rate=20)), group_cases(crossed))


def test_a_case_in_two_directories_of_a_side_is_an_error_that_names_them():
    twice = trials("one", EIGHT) + trials("two", EIGHT)
    with pytest.raises(UsageError, match="B has pcvm.* in one and in two: name one of them as B"):
        match(group_cases(trials("a", EIGHT)), group_cases(twice))


def test_trials_that_are_on_both_sides_are_not_compared_with_themselves():
    a = trials("a", EIGHT) + trials("a", EIGHT, rate=20)
    copied = [replace(trial, directory=Path("copy")) for trial in a[:8]]
    matching = match(group_cases(a), group_cases(copied + trials("b", SLOWER, rate=20)))
    assert [pair.a.load for pair in matching.pairs] == [20] and [pair.a.load for pair in matching.same] == [10]
    assert "the same trials in A and in B, not compared: 1 test case" in describe(compare(matching, [METRICS["p50"]]))
    with pytest.raises(UsageError, match="A and B are the same trials"):
        match(group_cases(a[:8]), group_cases(copied))


def test_other_machines_are_named():
    a, b = ([replace(trial, testbed=name) for trial in trials(name, EIGHT)] for name in ("lab", "r640"))
    assert "measured on other machines: lab in A, r640 in B" in describe(compared(a, b))
    assert "machines" not in describe(compared(a, trials("b", EIGHT)))


# --- options -----------------------------------------------------------------------------------------------------------


def test_metrics_are_taken_by_name():
    assert [metric.name for metric in parse_metrics([])] == ["achieved", "loss", "p50", "p99"]
    assert [metric.name for metric in parse_metrics(["max, p50", "p50"])] == ["max", "p50"]
    for text, message in (
        ("p51", r"no such metric .*; there are achieved"),
        ("samples", "neither more nor less"),
        ("", "no such"),
    ):
        with pytest.raises(UsageError, match=message):
            parse_metrics([text])


def test_thresholds_are_shares_or_in_the_metrics_unit():
    metrics = parse_metrics([])
    assert parse_thresholds(["p50=5%", "loss=.5,p99 = 12"], metrics) == {
        "p50": Threshold(0.05, relative=True),
        "loss": Threshold(0.5),
        "p99": Threshold(12.0),
    }
    assert [str(threshold) for threshold in parse_thresholds(["p50=2.5%", "loss=1"], metrics).values()] == ["2.5%", "1"]
    for text in ("p50", "p50=", "p50=-1", "p50=nan", "p50=1e3", "p50=5 %%", "p95=1", "p50=1,p50=2", ""):
        with pytest.raises(UsageError, match="--threshold"):
            parse_thresholds([text], metrics)


# --- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    """``old`` and ``again`` are the same measured twice, ``slow`` has a median a fifth larger: 3 rates, 8 repetitions."""
    directory, chance = tmp_path_factory.mktemp("compare"), random.Random(5)
    for name, latency in (("old", 100_000), ("again", 100_000), ("slow", 120_000)):
        measured.measure(directory / name, 8, chance, latency_ns=latency)
    measured.measure(directory / "interfaces", 8, chance, rates=(10,))
    measured.measure(directory / "interfaces", 8, chance, rates=(10,), interface="macvtap", latency_ns=120_000)
    measured.measure(directory / "few", 2, chance)
    measured.measure(directory / "lossy", 2, chance, loss=0.12)
    (directory / "empty").mkdir()
    return directory


def test_the_exit_code_tells_a_regression(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    assert main(["compare", "old", "again"]) == 0
    assert capsys.readouterr().out.endswith("12 comparisons of 3 test cases: 12 no difference\n")
    assert main(["compare", "old", "slow"]) == 1
    assert capsys.readouterr().out.endswith("12 comparisons of 3 test cases: 6 regression, 6 no difference\n")
    assert main(["compare", "slow", "old"]) == 0, "an improvement"
    assert main(["compare", "old", "slow", "--threshold", "p50=30%", "--threshold", "p99=30%"]) == 0
    assert main(["compare", "old", "slow", "--metric", "loss"]) == 0
    assert main(["compare", "few", "lossy"]) == 0
    assert "12 too few repetitions" in capsys.readouterr().out


def test_two_selections_of_one_directory_are_compared(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    assert main(["compare", "interfaces:interface=bridge", "interfaces:interface=macvtap"]) == 1
    assert "interface: bridge in A, macvtap in B" in capsys.readouterr().out
    assert main(["compare", "old", "slow", "--select", "rate=20..40", "--metric", "p50"]) == 1
    assert "2 comparisons of 2 test cases" in capsys.readouterr().out


TESTS = """\
[{name}]
machines = pcvm
interfaces = bridge
qemus = normal:
vhosts = yes
ioregionfds = no
reflectors = xdp
rates = {rates}
sizes = 60
runtimes = 30
repetitions = 8
outputdir = {name}
"""


def test_a_tests_file_is_compared_with_a_directory(results, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(results)
    tests = tmp_path / "tests.conf"
    tests.write_text(TESTS.format(name=results / "old", rates="10, 40"))
    assert main(["compare", str(tests), "slow"]) == 1
    text = capsys.readouterr().out
    assert "8 comparisons of 2 test cases: 4 regression" in text and "only in B: 1 test case" in text
    both = [TESTS.format(name=results / name, rates="10").replace("[", f"[{name} of ", 1) for name in ("old", "again")]
    tests.write_text("\n".join(both))
    assert main(["compare", "slow", str(tests)]) == 2
    error = capsys.readouterr().err
    assert f"in {results / 'again'} and in {results / 'old'}: name one of them as B" in error


def test_every_line_of_the_text_fits_a_terminal(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    for arguments in (["old", "slow"], ["few", "lossy"], ["interfaces", "slow"]):
        main(["compare", *arguments, "--metric", "achieved,throughput,loss,mean,std,p50,p99,p999,max"])
        assert max(map(len, capsys.readouterr().out.splitlines())) <= 120


def test_the_same_comparison_twice_gives_the_same_text(results, monkeypatch, capsys):
    monkeypatch.chdir(results)
    texts = set()
    for _ in range(2):
        main(["compare", "old", "slow"])
        texts.add(capsys.readouterr().out)
    assert len(texts) == 1


def test_the_junit_file_fails_where_there_is_a_regression_and_skips_what_was_not_compared(results, monkeypatch, tmp_path):
    monkeypatch.chdir(results)
    file = tmp_path / "junit.xml"
    assert main(["compare", "old", "slow", "--junit", str(file)]) == 1
    document = JUnitXml.fromfile(str(file))
    assert (document.tests, document.failures, document.errors, document.skipped) == (12, 6, 0, 0)
    (suite,) = document
    assert {case.name for case in suite if case.is_failure} == {"p50", "p99"}
    failed = next(case for case in suite if case.is_failure)
    assert failed.classname.startswith("pcvm, bridge") and failed.result[0].message.startswith("regression: median latency ")
    assert "effect size: +1.00" in failed.result[0].text
    assert main(["compare", "interfaces", "slow", "--junit", str(file)]) == 1
    (suite,) = JUnitXml.fromfile(str(file))
    skipped = {(case.name, case.result[0].message) for case in suite if case.is_skipped}
    assert skipped == {("all metrics", "only in A"), ("all metrics", "only in B")}


def test_wrong_options_are_refused_with_what_would_be_right(results, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(results)
    for arguments, message in (
        (["old", "nowhere"], "nowhere: no such output directory"),
        (["old", "empty"], "empty: holds no load latency trials"),
        (["old", "slow", "--metric", "p51"], "--metric p51: no such metric"),
        (["old", "slow", "--threshold", "p50"], "--threshold p50: expected a share"),
        (["old", "slow", "--junit", "junit.csv"], "use a name that ends in .xml"),
        (["old", "slow", "--junit", str(tmp_path / "none" / "junit.xml")], "there is no directory"),
        (["old", "old"], "the same trials"),
        (["old", "slow:rate=11"], "rate is nowhere 11"),
    ):
        assert main(["compare", *arguments]) == 2, arguments
        said = capsys.readouterr()
        assert message in said.err and not said.out
    for alpha in ("0", "1", "x"):
        with pytest.raises(SystemExit):
            main(["compare", "old", "slow", "--alpha", alpha])


def test_checks_are_one_for_each_comparison():
    result = compared(trials("a", EIGHT[:2]), trials("b", SLOWER[:2]), "p50", "p99")
    assert [(check.name, check.state) for check in checks(result)] == [("p50", "skipped"), ("p99", "skipped")]


def test_where_b_has_nothing_usable_the_check_is_an_error_and_not_passed_over():
    result = compared(trials("a", EIGHT), trials("b", EIGHT, verdict=Verdict.NO_REFLECTION))
    assert [(check.state, check.message) for check in checks(result)] == [("error", "no usable repetition in B, 8 in A")]
    assert result.is_worse
    result = compared(trials("a", EIGHT, verdict=Verdict.NO_REFLECTION), trials("b", EIGHT))
    assert [check.state for check in checks(result)] == ["skipped"]
    assert not result.is_worse
