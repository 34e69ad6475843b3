import errno
import json
import os
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sample_output as sample
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.results import files as whole
from autotest.results.names import TrialName
from autotest.results.records import TRIAL_VERSION, acceptance
from autotest.results.store import ResultStore
from autotest.results.timing import Step, Timing
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
    assert kept == sorted(
        f"{k}_{NAME}.{n}.{s}" for k, s in (("output", "log"), ("histogram", "csv"), ("trial", "json")) for n in (1, 2)
    )
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
    (tmp_path / NAME.trial).write_text(f'{{"version": {TRIAL_VERSION + 1}}}')
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


@settings(max_examples=examples(60))
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


# -- what the user accepts ---------------------------------------------------------------------------------

NO_SAMPLES = {"output": sample.output(300_000, 0)}


@pytest.mark.parametrize(
    ("verdict", "files"),
    [("disturbed", FILES), ("counter-mismatch", FILES), ("under-sent", FILES), ("too-few-samples", {**FILES, "histogram": b""}),
     ("no-reflection", NO_SAMPLES), ("incomplete", FILES)],
)  # fmt: skip
def test_an_accepted_trial_is_done_from_then_on_and_its_verdict_stays(tmp_path, verdict, files):
    store = ResultStore(tmp_path)
    store.commit(NAME, files, {"verdict": verdict, "reason": "so", "accepted": None})
    before = json.loads((tmp_path / NAME.trial).read_text())
    assert store.accept(NAME, {Verdict(verdict)})
    assert not store.accept(NAME, {Verdict(verdict)}), "it was noted before"
    after = json.loads((tmp_path / NAME.trial).read_text())
    assert {**after, "accepted": None} == before
    assert datetime.fromisoformat(after["accepted"]["at"]).tzinfo and "@" in after["accepted"]["by"]
    for reader in (store, ResultStore(tmp_path)):
        assert reader.is_done(NAME)
        assert reader.load(NAME).is_accepted and reader.load(NAME).verdict == verdict
    assert names(tmp_path) == sorted([NAME.trial, *(NAME.file(kind) for kind in files)])


def test_a_verdict_accepted_for_one_run_is_done_in_that_run_only(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    for _ in range(2):
        assert (
            store.is_done(NAME, {Verdict.DISTURBED}) and not store.is_done(NAME) and not store.is_done(NAME, {Verdict.INCOMPLETE})
        )
    assert not store.accept(NAME, {Verdict.INCOMPLETE})
    assert json.loads((tmp_path / NAME.trial).read_text()).get("accepted") is None


def test_a_valid_trial_needs_no_acceptance(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, VALID)
    assert not store.accept(NAME, set(Verdict)) and not store.load(NAME).is_accepted
    assert "accepted" not in json.loads((tmp_path / NAME.trial).read_text())


@pytest.mark.parametrize("damage", ["placeholder", "no record", "cut off", "exchanged", "no totals", "half a histogram"])
def test_what_cannot_be_used_is_not_done_whatever_is_accepted(tmp_path, damage):
    store = ResultStore(tmp_path)
    files = dict(FILES)
    if damage == "no totals":
        files["output"] = sample.output()[:-100]
    elif damage == "half a histogram":
        files["histogram"] = sample.histogram()[:-1]
    store.commit(NAME, files, {"verdict": "incomplete", "accepted": acceptance()})
    if damage == "placeholder":
        (tmp_path / NAME.trial).write_text(
            json.dumps({"version": 2, "infix": NAME.infix, "repetition": 0, "verdict": "incomplete", "files": {}})
        )
        (tmp_path / NAME.output).unlink()
    elif damage == "no record":
        (tmp_path / NAME.trial).unlink()
        (tmp_path / NAME.histogram).write_text("1,")
    elif damage == "cut off":
        os.truncate(tmp_path / NAME.output, 500)
    elif damage == "exchanged":
        (tmp_path / NAME.output).write_text(sample.output(7, 7))
    before = (tmp_path / NAME.trial).read_bytes() if (tmp_path / NAME.trial).exists() else None
    store = ResultStore(tmp_path)
    assert not store.is_done(NAME, set(Verdict)) and not store.accept(NAME, set(Verdict)) and not store.load(NAME).is_accepted
    assert before == ((tmp_path / NAME.trial).read_bytes() if before else None)
    if damage in ("no totals", "half a histogram"):
        assert json.loads(before)["accepted"] is None, "the commit saw it"


def test_a_trial_committed_as_accepted_is_done_and_not_overwritten(tmp_path):
    store = ResultStore(tmp_path)
    stored = store.commit(NAME, FILES, {"verdict": "disturbed", "accepted": acceptance()})
    assert stored.is_accepted and store.is_done(NAME) and ResultStore(tmp_path).is_done(NAME)
    with pytest.raises(ResultsError, match="done already"):
        store.commit(NAME, FILES, VALID)


def test_a_note_of_acceptance_that_fails_leaves_the_record_as_it_was(tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    before = (tmp_path / NAME.trial).read_bytes()
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(ResultsError, match="No space left"):
            store.accept(NAME, {Verdict.DISTURBED})
    assert (tmp_path / NAME.trial).read_bytes() == before and not store.is_done(NAME)
    assert names(tmp_path) == sorted([NAME.output, NAME.histogram, NAME.trial])


@pytest.mark.parametrize("edited", ['"reason": NaN', '"reason": "\\ud800"'])
def test_a_record_that_cannot_be_written_again_is_not_noted_as_accepted(tmp_path, edited):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed", "reason": ""})
    path = tmp_path / NAME.trial
    path.write_text(path.read_text().replace('"reason": ""', edited))
    with pytest.raises(ResultsError, match="cannot be written again as JSON"):
        store.accept(NAME, {Verdict.DISTURBED})
    assert edited in path.read_text() and not store.is_done(NAME)


# -- what is measured again though it is done --------------------------------------------------------------


@pytest.mark.parametrize("before", ["valid", "under-sent", "accepted", "older tool"])
def test_a_done_trial_is_replaced_where_that_is_wanted_and_its_files_are_kept(tmp_path, before):
    earlier = {**FILES, "output": sample.output(received=77)}
    if before == "older tool":
        old_trial(tmp_path, earlier["output"])
    else:
        verdict = {"verdict": "disturbed", "accepted": acceptance()} if before == "accepted" else {"verdict": before}
        ResultStore(tmp_path).commit(NAME, earlier, verdict)
    store = ResultStore(tmp_path)
    assert store.is_done(NAME)
    store.commit(NAME, FILES, {"verdict": "disturbed"}, replace=True)
    assert not store.is_done(NAME) and store.load(NAME).verdict is Verdict.DISTURBED
    kept = tmp_path / "invalid"
    assert (kept / f"output_{NAME}.1.log").read_text() == earlier["output"]
    assert (kept / f"trial_{NAME}.1.json").exists() == (before != "older tool")
    store.commit(NAME, FILES, VALID)
    store.commit(NAME, FILES, VALID, replace=True)
    assert store.is_done(NAME) and len(names(kept)) == (8 if before == "older tool" else 9)


def test_a_replacement_interrupted_anywhere_leaves_either_trial_or_none(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        ResultStore(tmp_path / "whole").commit(NAME, FILES, {**VALID, "mark": "earlier"})
        count = crash_at(10**6, patch)
        ResultStore(tmp_path / "whole").commit(NAME, FILES, {**VALID, "mark": "later"}, replace=True)
        steps = count()
    marks = []
    for step in range(steps):
        directory = tmp_path / str(step)
        ResultStore(directory).commit(NAME, FILES, {**VALID, "mark": "earlier"})
        with monkeypatch.context() as patch:
            crash_at(step, patch)
            with pytest.raises(Crash):
                ResultStore(directory).commit(NAME, FILES, {**VALID, "mark": "later"}, replace=True)
        stored = ResultStore(directory).load(NAME)
        marks.append(stored.trial.get("mark"))
        assert stored.verdict.is_done == (marks[-1] is not None)
        if marks[-1] != "earlier":
            assert json.loads((directory / "invalid" / f"trial_{NAME}.1.json").read_text())["mark"] == "earlier"
    assert [mark for mark in ("earlier", None, "later") if mark in marks] == list(dict.fromkeys(marks))


# -- several guests ----------------------------------------------------------------------------------------

TWO = TrialName("pcvm_bridge_q_vhostoff_ioregionfdoff_guests2_xdp_10kpps_60B_30s", 0)
OF_TWO = {
    "output": sample.of_guests((150_000, 150_000), (150_000, 150_000)),
    "histogram": sample.histogram(),
    "guests": sample.guest_histograms(2),
}


def test_the_guests_histograms_are_committed_with_the_others(tmp_path):
    ResultStore(tmp_path).commit(TWO, OF_TWO, VALID)
    assert names(tmp_path) == sorted([TWO.output, TWO.histogram, TWO.file("guests"), TWO.trial])
    stored = ResultStore(tmp_path).load(TWO)
    assert stored.verdict is Verdict.VALID and stored.files["guests"].decode() == OF_TWO["guests"]
    recorded = json.loads((tmp_path / TWO.trial).read_text())["files"]["guests"]
    assert recorded["name"] == f"guests_{TWO}.csv" and recorded["size"] == len(OF_TWO["guests"])
    assert ResultStore(tmp_path).trials() == [TWO]


@pytest.mark.parametrize("damage", ["missing", "cut off", "exchanged"])
def test_guests_histograms_that_are_recorded_must_be_there_as_they_were(tmp_path, damage):
    ResultStore(tmp_path).commit(TWO, OF_TWO, VALID)
    path = tmp_path / TWO.file("guests")
    if damage == "missing":
        path.unlink()
    else:
        path.write_text(OF_TWO["guests"][:-9] if damage == "cut off" else OF_TWO["guests"].replace("1,10000,1", "1,10000,2"))
    stored = ResultStore(tmp_path).load(TWO)
    assert stored.verdict is Verdict.INCOMPLETE and not ResultStore(tmp_path).is_done(TWO)
    assert (
        stored.reason
        == f"the file of the guests' histograms is {'missing' if damage == 'missing' else 'not the one that was measured'}"
    )


def test_guests_histograms_that_cannot_be_read_make_no_done_trial(tmp_path):
    spoiled = {**OF_TWO, "guests": "1,5,1\n1,4,1\n"}
    store = ResultStore(tmp_path)
    with pytest.raises(ResultsError, match="cannot be valid: the guests' histograms:2: .* not ascending"):
        store.commit(TWO, spoiled, VALID)
    assert names(tmp_path) == []
    store.commit(TWO, spoiled, {"verdict": "incomplete"})
    assert not store.is_done(TWO, set(Verdict)) and not store.accept(TWO, set(Verdict))


def test_the_guests_histograms_of_an_earlier_attempt_are_kept_with_its_other_files(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(TWO, OF_TWO, {"verdict": "disturbed"})
    store.commit(TWO, {kind: OF_TWO[kind] for kind in ("output", "histogram")}, VALID)
    assert names(tmp_path / "invalid") == sorted(
        f"{kind}_{TWO}.1.{suffix}"
        for kind, suffix in (("output", "log"), ("histogram", "csv"), ("guests", "csv"), ("trial", "json"))
    )
    assert not (tmp_path / TWO.file("guests")).exists(), "it is none of the trial that is there now"
    assert store.is_done(TWO) and ResultStore(tmp_path).is_done(TWO)


def test_a_commit_with_several_guests_interrupted_anywhere_leaves_either_trial_or_none(tmp_path, monkeypatch):
    later = {**OF_TWO, "guests": sample.guest_histograms(2, first=500)}
    with monkeypatch.context() as patch:
        ResultStore(tmp_path / "whole").commit(TWO, OF_TWO, VALID)
        count = crash_at(10**6, patch)
        ResultStore(tmp_path / "whole").commit(TWO, later, VALID, replace=True)
        steps = count()
    seen = []
    for step in range(steps):
        directory = tmp_path / str(step)
        ResultStore(directory).commit(TWO, OF_TWO, VALID)
        with monkeypatch.context() as patch:
            crash_at(step, patch)
            with pytest.raises(Crash):
                ResultStore(directory).commit(TWO, later, VALID, replace=True)
        stored = ResultStore(directory).load(TWO)
        seen.append(stored.files["guests"].decode() if stored.verdict.is_done else None)
    assert set(seen) >= {OF_TWO["guests"], None} and set(seen) <= {OF_TWO["guests"], later["guests"], None}


def test_a_trial_with_missing_guests_counts_only_where_that_is_accepted(tmp_path):
    store = ResultStore(tmp_path)
    record = {"verdict": "missing-guests", "reason": "1 of 2 guests were not there", "missing_guests": {"guest2": "did not boot"}}
    store.commit(TWO, FILES, record)
    assert not store.is_done(TWO) and store.is_done(TWO, {Verdict.MISSING_GUESTS})
    assert not Verdict.MISSING_GUESTS.is_mergeable
    assert store.accept(TWO, {Verdict.MISSING_GUESTS}) and ResultStore(tmp_path).is_done(TWO)
    assert json.loads((tmp_path / TWO.trial).read_text())["missing_guests"] == {"guest2": "did not boot"}


# -- records of the first format ---------------------------------------------------------------------------


def first_format(directory, **more):
    """A record as autotest wrote it before there was an identity."""
    ResultStore(directory).commit(NAME, FILES, VALID)
    path = directory / NAME.trial
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 1, "testbed": {"host": {}}, **more}))


@pytest.mark.parametrize("version", [1, 2])
def test_a_record_of_an_earlier_format_stays_valid_as_it_is(tmp_path, version):
    first_format(tmp_path, version=version)
    before = (tmp_path / NAME.trial).read_bytes()
    store = ResultStore(tmp_path)
    assert store.is_done(NAME) and store.load(NAME).verdict is Verdict.VALID and store.identity(NAME) is None
    assert (tmp_path / NAME.trial).read_bytes() == before


def test_a_record_of_the_first_format_can_be_accepted(tmp_path):
    first_format(tmp_path, verdict="disturbed")
    store = ResultStore(tmp_path)
    assert store.accept(NAME, {Verdict.DISTURBED}) and ResultStore(tmp_path).is_done(NAME)
    assert json.loads((tmp_path / NAME.trial).read_text())["version"] == 1


@pytest.mark.parametrize("version", [0, 1.5, "2", None, True, [2]])
def test_a_record_of_no_format_is_not_done(tmp_path, version):
    first_format(tmp_path, version=version)
    assert ResultStore(tmp_path).load(NAME).verdict is Verdict.INCOMPLETE


@pytest.mark.parametrize("version", [1, 2])
def test_a_placeholder_of_an_interrupted_earlier_autotest_is_not_kept(tmp_path, version):
    placeholder = {"version": version, "infix": NAME.infix, "repetition": 0, "verdict": "incomplete"}
    placeholder |= {"reason": "the commit of this trial was interrupted", "files": {}}
    (tmp_path / NAME.trial).write_text(json.dumps(placeholder, indent=2) + "\n")
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    assert not (tmp_path / "invalid").exists()


def test_a_file_that_cannot_be_written_is_named_and_not_its_temporary_one(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        whole.write_atomically(tmp_path / "none" / "table.csv", b"")
    assert raised.value.filename == str(tmp_path / "none" / "table.csv")


# -- each part by hand -------------------------------------------------------------------------------------


def refuse(_path):
    raise AssertionError("a file was read")


def test_trials_are_those_of_which_there_is_any_file_in_the_order_of_their_numbers(tmp_path):
    (tmp_path / "invalid").mkdir()
    for name in ("output_b_rep10.log", "trial_b_rep9.json", "histogram_b_rep9.csv", "guests_a_rep2.csv", "acc_histogram_c.csv",
                 "notes.txt", "output_d_rep1.csv", "invalid/output_e_rep1.log"):  # fmt: skip
        (tmp_path / name).touch()
    store = ResultStore(tmp_path)
    assert store.trials() == [TrialName("a", 2), TrialName("b", 9), TrialName("b", 10)]
    assert store.present() == {("a", 2), ("b", 9), ("b", 10)}
    assert ResultStore(tmp_path / "none").trials() == [] and ResultStore(tmp_path / "none").present() == set()


def test_a_directory_that_is_none_is_named(tmp_path):
    (tmp_path / "file").touch()
    store = ResultStore(tmp_path / "file")
    for ask in (store.trials, store.present, lambda: store.is_done(NAME)):
        with pytest.raises(ResultsError) as raised:
            ask()
        assert str(raised.value) == f"{tmp_path / 'file'}: Not a directory"


@pytest.mark.parametrize("present", [[], ["histogram"], ["guests"], ["histogram", "guests"]])
def test_a_trial_without_output_and_record_is_not_done_and_nothing_of_it_is_read(tmp_path, monkeypatch, present):
    for kind in present:
        (tmp_path / NAME.file(kind)).write_text("1,1\n")
    monkeypatch.setattr(whole, "read_bytes", refuse)
    assert not ResultStore(tmp_path).is_done(NAME, set(Verdict))


RECORD = {
    **VALID,
    "identity": {"hash": "abc"},
    "timing": {"seconds": 40.5, "least": 31.0, "set_up": [{"stage": "guest", "way": "entered", "seconds": 9.0}], "start": 2.0},
}
TIMING = Timing(40.5, 31.0, (Step("guest", "entered", 9.0),), 2.0)


@pytest.mark.parametrize("asked", ["nothing", "whether it is done", "committed here"])
def test_identity_and_timing_are_read_from_the_record_unless_they_are_known(tmp_path, monkeypatch, asked):
    committing = ResultStore(tmp_path)
    assert not committing.is_done(NAME)
    committing.commit(NAME, FILES, RECORD)
    store = committing if asked == "committed here" else ResultStore(tmp_path)
    if asked == "whether it is done":
        assert store.is_done(NAME)
    if asked != "nothing":
        monkeypatch.setattr(whole, "read_bytes", refuse)
        assert store.is_done(NAME)
    assert (store.identity(NAME), store.timing(NAME)) == ("abc", TIMING)


def test_what_is_not_done_is_read_each_time(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {**RECORD, "verdict": "disturbed"})
    assert not store.is_done(NAME) and (store.identity(NAME), store.timing(NAME)) == ("abc", TIMING)
    ResultStore(tmp_path).commit(NAME, FILES, {**VALID, "identity": {"hash": "def"}})
    assert store.is_done(NAME) and (store.identity(NAME), store.timing(NAME)) == ("def", Timing())


@pytest.mark.parametrize("identity", [None, "abc", ["abc"], {}, {"hash": None}, {"hash": 7}, {"hash": ["abc"]}])
def test_an_identity_that_is_none_is_none(tmp_path, identity):
    ResultStore(tmp_path).commit(NAME, FILES, {**VALID, "identity": identity})
    assert ResultStore(tmp_path).identity(NAME) is None
    assert (
        ResultStore(tmp_path).identity(TrialName("none", 0)) is None
        and ResultStore(tmp_path).timing(TrialName("none", 0)) == Timing()
    )


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b"null", b"7", b'"x"', b"\xff", b"[" * 100_000, b"{}"])
def test_a_record_that_cannot_be_read_is_empty(tmp_path, content):
    if content is not None:
        (tmp_path / NAME.trial).write_bytes(content)
    assert ResultStore(tmp_path).record(NAME) == {}


def test_a_record_is_told_whatever_became_of_the_other_files(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, RECORD)
    (tmp_path / NAME.output).unlink()
    found = ResultStore(tmp_path).record(NAME)
    assert (found["verdict"], found["identity"], found["infix"]) == ("valid", {"hash": "abc"}, NAME.infix)
    (tmp_path / NAME.trial).unlink()
    (tmp_path / NAME.trial).mkdir()
    with pytest.raises(ResultsError, match=f"{NAME.trial}: Is a directory"):
        store.record(NAME)


def test_a_trials_files_lie_in_the_directory(tmp_path):
    store = ResultStore(str(tmp_path))
    assert store.outputdir == tmp_path
    for kind in ("output", "histogram", "guests", "trial"):
        assert store.path(NAME, kind) == tmp_path / NAME.file(kind)


@pytest.mark.parametrize("named", [True, False])
def test_an_acceptance_that_cannot_be_written_names_the_file(tmp_path, monkeypatch, named):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", *(["/elsewhere"] if named else []))

    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResultsError) as raised:
        store.accept(NAME, {Verdict.DISTURBED})
    assert str(raised.value) == f"{'/elsewhere' if named else tmp_path / NAME.trial}: cannot write: No space left on device"


def test_an_acceptance_is_remembered_and_of_what_is_there_only(tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    assert not store.accept(NAME, set(Verdict))
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    assert store.is_done(NAME, {Verdict.DISTURBED})
    assert not store.accept(NAME, {Verdict.NO_REFLECTION}) and not store.accept(NAME, ())
    assert store.accept(NAME, {Verdict.NO_REFLECTION, Verdict.DISTURBED})
    monkeypatch.setattr(whole, "read_bytes", refuse)
    assert store.is_done(NAME) and not store.accept(NAME, {Verdict.DISTURBED})


def test_an_edited_record_that_cannot_be_written_again_is_named(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed", "reason": ""})
    path = tmp_path / NAME.trial
    path.write_text(path.read_text().replace('"reason": ""', '"reason": NaN'))
    with pytest.raises(ResultsError) as raised:
        store.accept(NAME, {Verdict.DISTURBED})
    assert str(raised.value).startswith(f"{path}: cannot be written again as JSON: ")


def test_where_results_cannot_be_written_is_said_in_full(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ResultsError) as raised:
        ResultStore(tmp_path / "file" / "b").check_writable()
    assert str(raised.value) == f"{tmp_path / 'file' / 'b'}: results cannot be written here: Not a directory"
    there = tmp_path / "there"
    there.mkdir()
    ResultStore(there / "a" / "b").check_writable()
    ResultStore(there).check_writable()
    assert names(tmp_path) == ["file", "there"] and names(there) == []


def test_directories_that_were_made_to_find_out_are_removed_though_it_cannot_be_written(tmp_path, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match="b: results cannot be written here: No space left on device$"):
        ResultStore(tmp_path / "a" / "b").check_writable()
    assert names(tmp_path) == []


def test_a_trial_that_runs_has_a_directory_beside_the_results_until_it_is_over(tmp_path):
    store = ResultStore(tmp_path / "out")
    with store.working_directory() as directory:
        assert directory.parent == tmp_path / "out" and directory.is_dir()
        (directory / "half").touch()
        assert store.clean() == [] and store.trials() == []
    assert names(tmp_path / "out") == []


@pytest.mark.parametrize(
    ("error", "filename"),
    [
        (OSError(errno.ENOSPC, "full"), "the directory"),
        (OSError(errno.ENOSPC, "full", "/elsewhere"), "/elsewhere"),
        (OSError("of no number"), None),
    ],
)
def test_an_error_that_names_no_file_is_about_the_directory(tmp_path, error, filename):
    with pytest.raises(OSError) as raised, ResultStore(tmp_path).naming_itself():
        raise error
    assert raised.value is error and error.filename == (str(tmp_path) if filename == "the directory" else filename)


def test_other_errors_and_none_pass_through(tmp_path):
    with pytest.raises(KeyError), ResultStore(tmp_path).naming_itself():
        raise KeyError
    with ResultStore(tmp_path).naming_itself():
        pass


def test_a_trial_that_is_done_already_is_named(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, VALID)
    before = names(tmp_path)
    with pytest.raises(ResultsError) as raised:
        store.commit(NAME, FILES, VALID)
    assert str(raised.value) == f"{tmp_path / NAME.trial}: this trial is done already and is not overwritten"
    assert names(tmp_path) == before and store.is_done(NAME)


@pytest.mark.parametrize("named", [True, False])
def test_a_commit_that_fails_names_the_file_or_the_directory(tmp_path, monkeypatch, named):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device", *(["/elsewhere"] if named else []))

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(ResultsError) as raised:
        ResultStore(tmp_path).commit(NAME, FILES, VALID)
    assert str(raised.value) == f"{'/elsewhere' if named else tmp_path}: cannot commit: No space left on device"


def test_what_was_committed_is_given_back(tmp_path):
    stored = ResultStore(tmp_path).commit(NAME, {"output": FILES["output"], "histogram": FILES["histogram"].encode()}, VALID)
    assert (stored.name, stored.verdict, stored.reason) == (NAME, Verdict.VALID, "")
    assert stored.files == {kind: content.encode() for kind, content in FILES.items()}
    loaded = ResultStore(tmp_path).load(NAME)
    assert (loaded.trial, loaded.files, loaded.verdict) == (stored.trial, stored.files, stored.verdict)


def test_a_file_to_copy_is_copied_and_one_that_is_not_there_is_named(tmp_path):
    source = tmp_path / "source.log"
    store = ResultStore(tmp_path / "out")
    with pytest.raises(ResultsError) as raised:
        store.commit(NAME, {**FILES, "output": source}, VALID)
    assert str(raised.value) == f"{source}: no such file, needed as output of {NAME}" and not (tmp_path / "out").exists()
    source.write_text(FILES["output"] + "é")
    store.commit(NAME, {**FILES, "output": source}, VALID)
    assert (tmp_path / "out" / NAME.output).read_text() == source.read_text() == FILES["output"] + "é"
    with pytest.raises(ResultsError) as raised:
        store.commit(NAME, {"trial": b""}, VALID)
    assert str(raised.value) == f"{NAME}: a trial has no file of kind 'trial', only output, histogram, guests"


def test_a_store_sees_what_it_commits_itself_without_looking_again(tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    assert store.trials() == []
    store.commit(NAME, FILES, VALID)
    monkeypatch.setattr(os, "scandir", refuse)
    assert store.trials() == [NAME] and store.is_done(NAME)
    monkeypatch.undo()
    store.commit(TWO, OF_TWO, {"verdict": "disturbed"})
    store.commit(TWO, {"output": OF_TWO["output"]}, {"verdict": "disturbed"})
    assert store._listing() == {*names(tmp_path)} - {"invalid"}


def test_a_commit_that_failed_leaves_nothing_known_that_is_not_there(tmp_path, monkeypatch):
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, VALID)
    assert store.is_done(NAME)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "broken")))
        with pytest.raises(ResultsError, match="cannot commit: broken"):
            store.commit(NAME, FILES, {"verdict": "disturbed"}, replace=True)
    (tmp_path / NAME.output).write_text("other")
    assert not store.is_done(NAME), "it is read again"


# -- earlier attempts --------------------------------------------------------------------------------------


def test_empty_files_of_an_earlier_attempt_are_not_kept(tmp_path):
    store = ResultStore(tmp_path)
    store.commit(NAME, {"output": sample.output(received=0), "histogram": b""}, {"verdict": "disturbed"})
    store.commit(NAME, FILES, VALID)
    assert names(tmp_path / "invalid") == sorted([f"output_{NAME}.1.log", f"trial_{NAME}.1.json"])


@pytest.mark.parametrize("kind", ["output", "histogram", "guests"])
def test_a_single_file_of_an_earlier_attempt_is_kept(tmp_path, kind):
    (tmp_path / NAME.file(kind)).write_text("half")
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    (kept,) = (tmp_path / "invalid").iterdir()
    assert kept.name == f"{kind}_{NAME}.1{Path(NAME.file(kind)).suffix}" and kept.read_text() == "half"


def test_where_there_was_nothing_nothing_is_kept(tmp_path):
    ResultStore(tmp_path).commit(NAME, FILES, VALID)
    (tmp_path / TWO.output).touch()
    ResultStore(tmp_path).commit(TWO, OF_TWO, VALID)
    assert not (tmp_path / "invalid").exists()


@pytest.mark.parametrize("taken", ["output", "histogram", "guests", "trial"])
def test_the_files_of_an_attempt_get_the_next_number_that_none_of_them_has(tmp_path, taken):
    suffix = NAME.file(taken).rpartition(".")[2]
    (tmp_path / "invalid").mkdir()
    for number in (1, 2, 4):
        (tmp_path / "invalid" / f"{taken}_{NAME}.{number}.{suffix}").write_text("kept before")
    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    store.commit(NAME, FILES, VALID)
    kept = {path.name for path in (tmp_path / "invalid").iterdir() if path.read_text() != "kept before"}
    assert kept == {f"output_{NAME}.3.log", f"histogram_{NAME}.3.csv", f"trial_{NAME}.3.json"}


@pytest.mark.parametrize("with_times", [True, False])
def test_without_hard_links_earlier_files_are_copied_with_their_times(tmp_path, monkeypatch, with_times):
    def unsupported(*_, **__):
        raise OSError(errno.EPERM, "Operation not permitted")

    store = ResultStore(tmp_path)
    store.commit(NAME, FILES, {"verdict": "disturbed"})
    os.utime(tmp_path / NAME.output, (1_000_000, 1_000_000))
    monkeypatch.setattr(os, "link", unsupported)
    if not with_times:
        monkeypatch.setattr(os, "utime", unsupported)
    store.commit(NAME, FILES, VALID)
    kept = tmp_path / "invalid" / f"output_{NAME}.1.log"
    assert kept.read_text() == FILES["output"] and (kept.stat().st_mtime == 1_000_000) is with_times
    assert names(tmp_path / "invalid") == sorted([f"output_{NAME}.1.log", f"histogram_{NAME}.1.csv", f"trial_{NAME}.1.json"])


def test_temporary_files_are_removed_also_where_earlier_attempts_are_kept(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    (tmp_path / "invalid").mkdir()
    left = []
    for directory in (tmp_path, tmp_path / "invalid"):
        mine = whole.temporary_path(directory)
        left.append(mine.with_name(mine.name.replace(f".{os.getpid()}.", f".{process.pid}.")))
        left[-1].touch()
    assert ResultStore(tmp_path).clean() == left and names(tmp_path) == ["invalid"] and names(tmp_path / "invalid") == []


# -- failures ----------------------------------------------------------------------------------------------


def test_each_failure_is_one_line_with_its_time_and_no_other_lines_are_between_them(tmp_path):
    store = ResultStore(tmp_path / "out")
    for number in range(3):
        store.note_failure(f"trial {number}", f"größer\nals {number}")
    raw = (tmp_path / "out" / "failures.jsonl").read_text()
    assert raw.endswith("}\n") and raw.count("\n") == 3 and "größer" in raw
    noted = [json.loads(line) for line in raw.splitlines()]
    assert [list(line) for line in noted] == [["time", "what", "reason"]] * 3
    assert [(line["what"], line["reason"]) for line in noted] == [(f"trial {n}", f"größer\nals {n}") for n in range(3)]
    for line in noted:
        assert len(line["time"]) == len("2026-01-01T00:00:00+00:00")
        assert abs(datetime.now(UTC) - datetime.fromisoformat(line["time"])) < timedelta(minutes=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"", b""),
        (b"\n", b"\n"),
        (b"{}\n", b"{}\n"),
        (b"{", b"{\n"),
        (b"{}\n{", b"{}\n{\n"),
        (b"x\t", b"x\t\n"),
        (b"\n\n", b"\n\n"),
    ],
)
def test_a_line_that_was_cut_off_stays_alone_and_a_whole_one_gets_no_empty_line_behind_it(tmp_path, before, after):
    (tmp_path / "failures.jsonl").write_bytes(before)
    ResultStore(tmp_path).note_failure("a", "b")
    content = (tmp_path / "failures.jsonl").read_bytes()
    assert content.startswith(after + b'{"time": ') and content.count(b"\n") == after.count(b"\n") + 1


def test_a_failure_with_half_a_character_is_noted_all_the_same(tmp_path):
    ResultStore(tmp_path).note_failure("a\ud800", "b")
    assert json.loads((tmp_path / "failures.jsonl").read_text())["what"] == "a?"


def test_a_failure_that_cannot_be_noted_names_the_file(tmp_path):
    (tmp_path / "failures.jsonl").mkdir()
    with pytest.raises(ResultsError) as raised:
        ResultStore(tmp_path).note_failure("a", "b")
    assert str(raised.value) == f"{tmp_path / 'failures.jsonl'}: cannot write: Is a directory"


def test_that_a_trial_may_be_replaced_is_said_by_name(tmp_path):
    with pytest.raises(TypeError):
        ResultStore(tmp_path).commit(NAME, FILES, VALID, True)
