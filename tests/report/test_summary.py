import dataclasses
from pathlib import Path

import example
import pytest

from autotest.cli.program import main
from autotest.errors import ResultsError
from autotest.report.cases import group_cases
from autotest.report.metrics import METRICS
from autotest.report.summary import count_open_failures, summarise
from autotest.report.trials import Trial, read_results
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict

GOLDEN = Path(__file__).parent / "summary.golden"


def test_the_table_is_the_golden_one(tmp_path):
    example.fill(tmp_path)
    table = summarise(read_results(tmp_path).trials)
    assert table == GOLDEN.read_text(encoding="utf-8")
    assert max(map(len, table.splitlines())) <= 100


def test_figures_are_means_over_the_valid_repetitions(tmp_path):
    example.fill(tmp_path)
    cases = group_cases(read_results(tmp_path).trials)
    case = next(case for case in cases if (case.parameters["interface"], case.load) == ("bridge", 40))
    loss, median = case.estimate(METRICS["loss"]), case.estimate(METRICS["p50"])
    assert (loss.mean, loss.pooled, loss.repetitions) == (pytest.approx(15), pytest.approx(15), 2)
    assert median.mean == pytest.approx((1500.499 + 1600.499) / 2, rel=1e-3)
    assert median.high - median.mean == pytest.approx(12.7062 * 50, rel=1e-3)  # t of one degree of freedom, s / sqrt(2) = 50
    assert case.samples == 2000


def test_an_under_sent_trial_of_the_older_tool_is_found_out(tmp_path):
    name = TrialName("host_pnic_xdp_100kpps_60B_30s", 0)
    (tmp_path / name.output).write_text(example.sample.output(300_000, 300_000))
    (tmp_path / name.histogram).write_text(example.sample.histogram())
    (case,) = group_cases(read_results(tmp_path).trials)
    assert case.under_sent and case.trials[0].verdict is Verdict.UNDER_SENT


def test_a_case_without_a_usable_repetition_tells_why_below_it(tmp_path):
    for repetition, reason in enumerate(("link went down", "link went down", "the clock jumped " + "far " * 60)):
        example.add(tmp_path, example.BRIDGE, 10, repetition, disturbed=reason, latency_ns=1000 + repetition)
    lines = summarise(read_results(tmp_path).trials).splitlines()
    row = next(number for number, line in enumerate(lines) if line.startswith("     10"))
    assert lines[row].endswith("-   0/3  disturbed")
    assert lines[row + 1] == "         disturbed: link went down"
    assert lines[row + 2].startswith("         disturbed: the clock jumped far far") and lines[row + 2].endswith("far ...")
    assert lines[row + 3] == "" and max(map(len, lines)) <= 100
    accepted = summarise(read_results(tmp_path).trials, {Verdict.DISTURBED})
    assert "link went down" not in accepted and "Accepted like valid: disturbed." in accepted


def test_no_more_than_three_reasons_are_shown(tmp_path):
    for repetition in range(5):
        example.add(tmp_path, example.BRIDGE, 10, repetition, disturbed=f"reason {repetition}", latency_ns=1000 + repetition)
    table = summarise(read_results(tmp_path).trials)
    assert "disturbed: reason 2\n         and 2 more\n" in table and "reason 3" not in table


def test_many_verdicts_and_long_names_keep_the_width(tmp_path):
    set_up = {**example.BRIDGE, "qemu": "a-build_" + "x" * 70}
    trials = []
    for verdict in Verdict:
        for _ in range(3):
            name = TrialName(LoadLatencyCase(rate=10, **set_up).infix, len(trials))
            parameters = {**set_up, "rate": 10}
            trials.append(Trial(tmp_path, name, parameters, verdict, reason="because"))
    table = summarise(trials)
    assert max(map(len, table.splitlines())) <= 100
    words = " ".join(table.split())
    assert (
        "3 valid, 3 under-sent, 3 too-few-samples, 3 counter-mismatch, 3 no-reflection, 3 disturbed, 3 missing-guests, 3 incomplete"
        in words
    )


def test_trials_whose_records_say_that_they_are_accepted_are_told_of(tmp_path):
    example.fill(tmp_path)
    trials = [dataclasses.replace(trial, accepted=not trial.verdict.is_done) for trial in read_results(tmp_path).trials]
    assert "\n2 of the trials count because their records say that they are accepted.\n" in summarise(trials)
    assert "records say" not in summarise(trials, {Verdict.DISTURBED})


def test_open_failures_are_told_in_the_last_line(tmp_path):
    example.fill(tmp_path)
    results = read_results(tmp_path)
    done, disturbed = (
        next(str(t.name) for t in results.trials if t.verdict is verdict) for verdict in (Verdict.VALID, Verdict.DISTURBED)
    )
    for what in (done, disturbed, "guest (machine microvm, interface bridge)", "undoing something"):
        ResultStore(tmp_path).note_failure(what, "reason")
    assert count_open_failures(results) == 2
    assert summarise(results.trials, open_failures=2).endswith(
        "\n2 failures are noted in failures.jsonl and not made up for; autotest status shows what is missing.\n"
    )
    assert "failures.jsonl" not in summarise(results.trials)


def test_a_set_up_that_failed_and_was_measured_since_is_no_failure_any_more(tmp_path):
    example.fill(tmp_path)
    ResultStore(tmp_path).note_failure("guest (machine pcvm, interface bridge, qemu normal, vhost on, ioregionfd off)", "reason")
    results = read_results(tmp_path)
    assert count_open_failures(results) == 1
    for started, still in (("2000-01-01T00:00:00+00:00", 1), ("2999-01-01T00:00:00+00:00", 0)):
        trials = tuple(dataclasses.replace(trial, started=started) for trial in results.trials)
        assert count_open_failures(dataclasses.replace(results, trials=trials)) == still


def test_several_directories_are_named_and_reasons_give_no_orders_to_the_terminal(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        example.add(tmp_path / name, example.BRIDGE, 10, 0, disturbed="\x1b]0;owned\x07 link went down")
    assert main(["summary", "a", "b"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("a\noffered") and "\n\nb\noffered" in shown
    assert "owned" in shown and "\x1b" not in shown and "\x07" not in shown


def test_a_directory_without_trials_or_none_at_all_is_told(tmp_path):
    assert summarise(read_results(tmp_path).trials) == "no load latency trials\n"
    with pytest.raises(ResultsError, match="no such directory"):
        read_results(tmp_path / "none")
