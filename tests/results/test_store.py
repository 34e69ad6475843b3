import json
import os
import subprocess
import time

import pytest
import sample_output as sample
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results import files as whole
from autotest.results.names import TrialName
from autotest.results.store import TRIAL_VERSION, ResultStore
from autotest.results.verdicts import Verdict

NAME = TrialName("host_pnic_xdp_10kpps_60B_30s", 0)
FILES = {"output": sample.output(), "histogram": sample.histogram()}
VALID = {"verdict": "valid", "figures": {"seconds": 30.0}}


def names(directory):
    return sorted(path.name for path in directory.iterdir())


def old_trial(directory, output=None, histogram=None, name=NAME):
    (directory / name.output).write_text(FILES["output"] if output is None else output)
    (directory / name.histogram).write_text(FILES["histogram"] if histogram is None else histogram)


def test_a_committed_trial_is_done_and_holds_what_was_given(tmp_path):
    store = ResultStore(tmp_path / "a" / "b")
    assert not store.is_done(NAME)
    store.commit(NAME, FILES, VALID)
    assert store.is_done(NAME) and ResultStore(store.outputdir).is_done(NAME)
    assert names(store.outputdir) == sorted([NAME.output, NAME.histogram, NAME.trial])
    trial = json.loads((store.outputdir / NAME.trial).read_text())
    assert (trial["version"], trial["verdict"], trial["figures"]) == (TRIAL_VERSION, "valid", {"seconds": 30.0})
    assert trial["files"]["output"]["size"] == len(FILES["output"].encode())
    assert {path.stat().st_mode & 0o777 for path in store.outputdir.iterdir()} == {0o644}
    assert store.outputdir.stat().st_mode & 0o777 == 0o755
    assert store.trials() == [NAME]


@pytest.mark.parametrize(("verdict", "done"), [(verdict, verdict in ("valid", "under-sent")) for verdict in Verdict])
def test_only_valid_and_under_sent_trials_are_done(tmp_path, verdict, done):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": verdict})
    assert store.is_done(NAME) is done


def test_a_done_trial_is_not_overwritten_even_if_another_run_wrote_it(tmp_path):
    store = ResultStore(tmp_path)
    assert not store.is_done(NAME)
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    with pytest.raises(ResultsError, match="done already"):
        store.commit(NAME, FILES, VALID)
    old_trial(tmp_path, name=TrialName("old", 3))
    with pytest.raises(ResultsError, match="done already"):
        store.commit(TrialName("old", 3), FILES, VALID)


def test_an_invalid_trial_is_kept_apart_when_measured_again(tmp_path):
    store = ResultStore(tmp_path)
    for attempt in ("disturbed", "no-reflection", "valid"):
        store.commit(NAME, {**FILES, "output": sample.output(received=len(attempt))}, {"verdict": attempt})
    kept = names(tmp_path / "invalid")
    assert kept == sorted(f"{k}_{NAME}.{n}.{s}" for k, s in (("output", "log"), ("histogram", "csv"), ("trial", "json")) for n in (1, 2))
    assert json.loads((tmp_path / "invalid" / f"trial_{NAME}.2.json").read_text())["verdict"] == "no-reflection"
    assert store.is_done(NAME)


def test_a_trial_of_the_older_tool_is_done_where_its_files_are_whole(tmp_path):
    old_trial(tmp_path)
    assert ResultStore(tmp_path).is_done(NAME)
    assert ResultStore(tmp_path).load(NAME).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("output", "histogram"),
    [("", None), (None, ""), (sample.output()[:-90], None), (None, sample.histogram()[:-2]), (None, "1;2\n")],
)
def test_empty_and_cut_off_files_of_the_older_tool_are_not_done(tmp_path, output, histogram):
    old_trial(tmp_path, output, histogram)
    assert not ResultStore(tmp_path).is_done(NAME)


@pytest.mark.parametrize("kind", ["output", "histogram"])
def test_files_that_do_not_belong_to_the_record_are_not_done(tmp_path, kind):
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    path = tmp_path / NAME.file(kind)
    path.write_text(path.read_text().replace("1", "2"))
    stored = ResultStore(tmp_path).load(NAME)
    assert stored.verdict is Verdict.INCOMPLETE and "not the one that was measured" in stored.reason
    path.unlink()
    assert "missing" in ResultStore(tmp_path).load(NAME).reason


@pytest.mark.parametrize("content", ["", "{", "[]", "null", '{"version": 1}', '{"version": 1, "files": 3}'])
def test_a_damaged_record_is_not_done(tmp_path, content):
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    (tmp_path / NAME.trial).write_text(content)
    assert not ResultStore(tmp_path).is_done(NAME)


def test_a_record_of_a_newer_version_is_refused(tmp_path):
    (tmp_path / NAME.trial).write_text('{"version": 2}')
    with pytest.raises(ResultsError, match="newer autotest"):
        ResultStore(tmp_path).is_done(NAME)


@pytest.mark.parametrize(
    ("files", "trial", "message"),
    [
        ({"output": "x", "histogram": "1,1\n"}, VALID, "no final totals"),
        ({"output": FILES["output"]}, VALID, "no histogram"),
        (FILES, {"verdict": "good"}, "not a verdict"),
        (FILES, {}, "not a verdict"),
        (FILES, {**VALID, "version": 7}, "written by the store"),
        (FILES, {**VALID, "x": float("nan")}, "JSON"),
        ({**FILES, "notes": "x"}, VALID, "no file of kind"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(tmp_path, files, trial, message):
    with pytest.raises(ResultsError, match=message):
        ResultStore(tmp_path).commit(NAME, files, trial)
    assert names(tmp_path) == []


class Crash(BaseException):
    pass


def crash_at(step, monkeypatch):
    """Let the step-th call that changes the disk, from now on, be the last that does; the tidying up fails as well."""
    calls = 0

    def limited(function):
        def call(*args, **kwargs):
            nonlocal calls
            calls += 1
            if calls > step:
                raise Crash
            return function(*args, **kwargs)

        return call

    for name in ("replace", "fsync", "link", "unlink"):
        monkeypatch.setattr(os, name, limited(getattr(os, name)))
    return lambda: calls


@settings(deadline=None, max_examples=60)
@given(step=st.integers(0, 24), before=st.sampled_from(["nothing", "disturbed", "cut off", "record only"]))
def test_a_commit_interrupted_anywhere_leaves_a_trial_that_is_done_or_not_done_but_never_wrong(tmp_path_factory, step, before):
    directory = tmp_path_factory.mktemp("out")
    if before == "disturbed":
        ResultStore(directory).commit(NAME, {**FILES, "output": sample.output(received=7)}, {"verdict": "disturbed"})
    elif before == "cut off":
        old_trial(directory, histogram=sample.histogram()[:-2])
    elif before == "record only":
        ResultStore(directory).commit(NAME, {}, {"verdict": "incomplete"})
    finished = False
    with pytest.MonkeyPatch.context() as patch:
        crash_at(step, patch)
        try:
            # Whole files with a verdict that forbids merging: the trap is to take them for the older tool's.
            ResultStore(directory).commit(NAME, FILES, {"verdict": "disturbed", "mark": "new"})
            finished = True
        except Crash:
            pass
    stored = ResultStore(directory).load(NAME)
    assert not stored.verdict.is_done
    if finished:
        assert stored.verdict is Verdict.DISTURBED and stored.trial["mark"] == "new"
    for kind in ("output", "histogram"):
        content = stored.files.get(kind)
        assert content is None or content.endswith(b"\n") or before == "cut off"
    ResultStore(directory).commit(NAME, FILES, VALID)
    assert ResultStore(directory).is_done(NAME)


def test_a_valid_commit_becomes_done_only_with_its_last_rename(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        count = crash_at(10**6, patch)
        ResultStore(tmp_path / "whole").commit(NAME, FILES, VALID)
        steps = count()
    done = []
    for step in range(steps):
        directory = tmp_path / str(step)
        with monkeypatch.context() as patch:
            crash_at(step, patch)
            with pytest.raises(Crash):
                ResultStore(directory).commit(NAME, FILES, VALID)
        done.append(ResultStore(directory).is_done(NAME))
    assert done == sorted(done) and done.count(True) == 1, "only the sync after the last rename may be missing"


def test_temporary_files_of_dead_runs_are_removed_and_others_stay(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    mine = whole.write_temporary(tmp_path, b"x")
    dead = mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{process.pid}."))
    dead.write_text("half")
    foreign = tmp_path / ".autotest-tmp.elsewhere-x.1.abc"
    foreign.touch()
    old = tmp_path / ".autotest-tmp.elsewhere-x.2.abc"
    old.touch()
    os.utime(old, (time.time() - 2 * whole.FOREIGN_AGE_S,) * 2)
    (tmp_path / "mine.txt").touch()
    assert sorted(ResultStore(tmp_path).clean()) == sorted([dead, old])
    assert names(tmp_path) == sorted([mine.name, foreign.name, "mine.txt"])
    assert ResultStore(tmp_path / "none").clean() == []


def test_whether_it_can_be_written_is_found_out_without_leaving_anything(tmp_path):
    ResultStore(tmp_path / "a" / "b").check_writable()
    ResultStore(tmp_path).check_writable()
    assert names(tmp_path) == []
    (tmp_path / "file").touch()
    for bad in (tmp_path / "file", tmp_path / "file" / "b"):
        with pytest.raises(ResultsError, match="cannot be written"):
            ResultStore(bad).check_writable()
    with pytest.raises(ResultsError, match="cannot be written"):
        ResultStore(tmp_path / ("x" * 300)).check_writable()


def test_the_listing_is_read_again_on_refresh(tmp_path):
    store = ResultStore(tmp_path)
    assert not store.is_done(NAME)
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    assert not store.is_done(NAME)
    store.refresh()
    assert store.is_done(NAME)


def test_a_full_disk_is_one_clear_error(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match="No space left"):
        ResultStore(tmp_path).commit(NAME, FILES, VALID)
    assert names(tmp_path) == []


def test_failures_are_added_line_by_line_also_behind_one_that_was_cut_off(tmp_path):
    store = ResultStore(tmp_path / "out")
    store.note_failure("a", "first\nlog")
    with open(tmp_path / "out" / "failures.jsonl", "a") as file:
        file.write('{"what": "ha')
    store.note_failure("b", "second")
    first, half, second = (tmp_path / "out" / "failures.jsonl").read_text().splitlines()
    assert json.loads(first)["reason"] == "first\nlog" and half == '{"what": "ha'
    assert json.loads(second)["what"] == "b" and json.loads(second)["time"]
