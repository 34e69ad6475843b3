import json
import os
import subprocess
import time
from datetime import datetime

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
