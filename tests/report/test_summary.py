from pathlib import Path

import example
import pytest

from autotest.errors import ResultsError
from autotest.report.summary import render_summary, summarise
from autotest.results.names import TrialName
from autotest.results.verdicts import Verdict

GOLDEN = Path(__file__).parent / "summary.golden"


def test_the_table_is_the_golden_one(tmp_path):
    example.fill(tmp_path)
    table = render_summary(summarise(tmp_path))
    assert table == GOLDEN.read_text(encoding="utf-8")
    assert max(map(len, table.splitlines())) <= 100


def test_figures_are_of_all_valid_repetitions_together(tmp_path):
    example.fill(tmp_path)
    case = next(c for c in summarise(tmp_path) if (c.parameters.interface, c.parameters.rate) == ("bridge", 40))
    assert (case.loss.value, case.loss.low, case.loss.high) == pytest.approx((0.15, 0.1, 0.2))
    assert (case.percentile_ns(50).value, case.percentile_ns(50).low) == (1_500_999, 1_500_499)
    assert case.samples == 2000


def test_an_under_sent_trial_of_the_older_tool_is_found_out(tmp_path):
    name = TrialName("host_pnic_xdp_100kpps_60B_30s", 0)
    (tmp_path / name.output).write_text(example.sample.output(300_000, 300_000))
    (tmp_path / name.histogram).write_text(example.sample.histogram())
    (case,) = summarise(tmp_path)
    assert case.under_sent and case.repetitions[0].verdict is Verdict.UNDER_SENT


def test_a_directory_without_trials_or_none_at_all_is_told(tmp_path):
    assert render_summary(summarise(tmp_path)) == "no load latency trials\n"
    with pytest.raises(ResultsError, match="no such directory"):
        summarise(tmp_path / "none")
