import json
import os
import shutil

import pytest
import sample_output as sample

from autotest.results import accumulate as module
from autotest.results.accumulate import STATE_FILE, accumulate
from autotest.results.names import TrialName
from autotest.results.records import acceptance
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict

INFIX = "host_pnic_xdp_10kpps_60B_30s"
ACC = f"acc_histogram_{INFIX}.csv"


def commit(directory, repetition, histogram, verdict="valid", infix=INFIX):
    files = {"output": sample.output(), "histogram": histogram}
    ResultStore(directory).commit(TrialName(infix, repetition), files, {"verdict": verdict})


def settle(directory, monkeypatch):
    """Let the files count as old enough to be known as unchanged."""
    monkeypatch.setattr(module, "SETTLED_NS", -(10**12))
    accumulate(directory)


def test_only_valid_repetitions_are_summed(tmp_path):
    commit(tmp_path, 0, "1,2\n5,1\n")
    commit(tmp_path, 1, "1,100\n", "under-sent")
    commit(tmp_path, 2, "1,100\n", "disturbed")
    commit(tmp_path, 3, "3,1\n5,4\n")
    (case,) = accumulate(tmp_path)
    assert (case.infix, case.repetitions, case.changed) == (INFIX, (0, 3), True)
    assert (tmp_path / ACC).read_text() == "1,2\n3,1\n5,5\n"
    assert (tmp_path / ACC).stat().st_mode & 0o777 == 0o644


def older(directory, repetition, output, histogram):
    (directory / f"output_{INFIX}_rep{repetition}.log").write_text(output)
    (directory / f"histogram_{INFIX}_rep{repetition}.csv").write_text(histogram)


def test_a_single_repetition_has_a_sum_too_and_the_older_tools_trials_count(tmp_path):
    older(tmp_path, 0, sample.output(), "7,100\n")
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == "7,100\n"
    older(tmp_path, 1, sample.output(), "7,100\n8,")
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == "7,100\n"


def test_trials_of_the_older_tool_are_summed_only_where_their_figures_are_valid(tmp_path):
    older(tmp_path, 0, sample.output(), "7,100\n")
    older(tmp_path, 1, sample.output(150_000, 150_000), "8,100\n")  # under-sent
    older(tmp_path, 2, sample.output(300_000, 400_000), "9,100\n")  # counter-mismatch
    older(tmp_path, 3, sample.output(), "10,3\n")  # too-few-samples
    (case,) = accumulate(tmp_path)
    assert case.repetitions == (0,) and (tmp_path / ACC).read_text() == "7,100\n"


def test_infixes_and_repetitions_can_be_chosen(tmp_path):
    for repetition in range(3):
        commit(tmp_path, repetition, f"{repetition},1\n")
        commit(tmp_path, repetition, "9,1\n", infix="other")
    assert [case.infix for case in accumulate(tmp_path, [INFIX], range(2))] == [INFIX]
    assert (tmp_path / ACC).read_text() == "0,1\n1,1\n"
    assert not (tmp_path / "acc_histogram_other.csv").exists()
    accumulate(tmp_path, [INFIX], range(3))
    assert (tmp_path / ACC).read_text() == "0,1\n1,1\n2,1\n"


def test_nothing_is_read_again_where_nothing_changed(tmp_path, monkeypatch):
    commit(tmp_path, 0, "1,2\n")
    settle(tmp_path, monkeypatch)
    monkeypatch.setattr(ResultStore, "load", lambda *_: pytest.fail("read again"))
    assert [case.changed for case in accumulate(tmp_path)] == [False]


def test_files_changed_just_now_are_not_trusted(tmp_path, monkeypatch):
    commit(tmp_path, 0, "1,2\n")
    accumulate(tmp_path)
    monkeypatch.setattr(ResultStore, "load", lambda *_: (_ for _ in ()).throw(KeyError("read")))
    with pytest.raises(KeyError):
        accumulate(tmp_path)


@pytest.mark.parametrize("change", ["added", "edited", "removed", "sum lost", "sum emptied", "state lost", "state damaged"])
def test_the_sum_follows_every_change(tmp_path, monkeypatch, change):
    commit(tmp_path, 0, "1,2\n")
    commit(tmp_path, 1, "1,2\n")
    settle(tmp_path, monkeypatch)
    expected = "1,4\n"
    if change == "added":
        commit(tmp_path, 2, "1,2\n")
        expected = "1,6\n"
    elif change == "edited":  # same size, same time: the record's checksum no longer holds
        path = tmp_path / f"histogram_{INFIX}_rep1.csv"
        times = path.stat()
        path.write_text("1,3\n")
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        expected = "1,2\n"
    elif change == "removed":
        for path in tmp_path.glob("*_rep1.*"):
            path.unlink()
        expected = "1,2\n"
    elif change == "sum lost":
        (tmp_path / ACC).unlink()
    elif change == "sum emptied":
        os.truncate(tmp_path / ACC, 0)
    else:
        (tmp_path / STATE_FILE).write_text("" if change == "state lost" else '{"version": 1, "cases": {"x": 3}}')
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == expected


def test_a_sum_of_what_may_not_be_merged_moves_away(tmp_path):
    (tmp_path / ACC).write_text("1,2\n")
    assert accumulate(tmp_path) == [] and (tmp_path / ACC).exists()
    commit(tmp_path, 0, "1,2\n", "disturbed")
    (case,) = accumulate(tmp_path)
    assert case.repetitions == () and case.changed
    assert not (tmp_path / ACC).exists()
    assert (tmp_path / "invalid" / f"acc_histogram_{INFIX}.1.csv").read_text() == "1,2\n"


def test_an_accepted_trial_is_summed_from_then_on(tmp_path, monkeypatch):
    commit(tmp_path, 0, "1,2\n")
    commit(tmp_path, 1, "5,7\n", "disturbed")
    commit(tmp_path, 2, "6,1\n", "under-sent")
    settle(tmp_path, monkeypatch)
    assert (tmp_path / ACC).read_text() == "1,2\n"
    assert ResultStore(tmp_path).accept(TrialName(INFIX, 1), {Verdict.DISTURBED})
    (case,) = accumulate(tmp_path)
    assert (case.repetitions, case.changed) == ((0, 1), True)
    assert (tmp_path / ACC).read_text() == "1,2\n5,7\n"
    assert json.loads((tmp_path / STATE_FILE).read_text())["cases"][INFIX]["repetitions"] == [0, 1]
    assert ResultStore(tmp_path).accept(TrialName(INFIX, 2), {Verdict.UNDER_SENT})
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == "1,2\n5,7\n6,1\n"


def test_an_accepted_trial_without_samples_adds_none(tmp_path):
    commit(tmp_path, 0, "1,2\n")
    files = {"output": sample.output(300_000, 0)}
    ResultStore(tmp_path).commit(TrialName(INFIX, 1), files, {"verdict": "no-reflection", "accepted": acceptance()})
    (case,) = accumulate(tmp_path)
    assert case.repetitions == (0,) and (tmp_path / ACC).read_text() == "1,2\n"


def test_a_copied_directory_gives_the_same_sums(tmp_path, monkeypatch):
    commit(tmp_path / "a", 0, "1,2\n")
    settle(tmp_path / "a", monkeypatch)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert [case.changed for case in accumulate(tmp_path / "b")] == [False]
    assert accumulate(tmp_path / "nowhere") == []


def test_of_several_guests_the_sum_is_of_all_together_and_a_file_of_theirs_that_changed_is_noticed(tmp_path, monkeypatch):
    infix = "pcvm_bridge_q_vhostoff_ioregionfdoff_guests2_xdp_10kpps_60B_30s"
    output = sample.of_guests((150_000, 150_000), (150_000, 150_000), samples=1)
    for repetition in (0, 1):
        files = {"output": output, "histogram": "5,1\n7,1\n", "guests": "1,7,1\n2,5,1\n"}
        ResultStore(tmp_path).commit(TrialName(infix, repetition), files, {"verdict": "valid"})
    settle(tmp_path, monkeypatch)
    assert (tmp_path / f"acc_histogram_{infix}.csv").read_text() == "5,2\n7,2\n"
    (case,) = accumulate(tmp_path)
    assert (case.repetitions, case.changed) == ((0, 1), False)
    (tmp_path / f"guests_{infix}_rep1.csv").unlink()
    (case,) = accumulate(tmp_path)
    assert (case.repetitions, case.changed) == ((0,), True)
    assert (tmp_path / f"acc_histogram_{infix}.csv").read_text() == "5,1\n7,1\n"
