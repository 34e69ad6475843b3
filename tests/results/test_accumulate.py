import os
import shutil

import pytest
import sample_output as sample

from autotest.results import accumulate as module
from autotest.results.accumulate import STATE_FILE, accumulate
from autotest.results.names import TrialName
from autotest.results.store import ResultStore

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


def test_a_single_repetition_has_a_sum_too_and_the_older_tools_trials_count(tmp_path):
    (tmp_path / f"output_{INFIX}_rep0.log").write_text(sample.output())
    (tmp_path / f"histogram_{INFIX}_rep0.csv").write_text("7,1\n")
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == "7,1\n"
    (tmp_path / f"output_{INFIX}_rep1.log").write_text(sample.output())
    (tmp_path / f"histogram_{INFIX}_rep1.csv").write_text("7,1\n8,")
    accumulate(tmp_path)
    assert (tmp_path / ACC).read_text() == "7,1\n"


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


def test_a_copied_directory_gives_the_same_sums(tmp_path, monkeypatch):
    commit(tmp_path / "a", 0, "1,2\n")
    settle(tmp_path / "a", monkeypatch)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert [case.changed for case in accumulate(tmp_path / "b")] == [False]
    assert accumulate(tmp_path / "nowhere") == []
