import gc
import json
import multiprocessing
import os
import shutil
import signal
import threading
import time

import example
import older
import pytest
import sample_output as sample

from autotest.errors import ResultsError
from autotest.report import reading
from autotest.report.trials import read_results
from autotest.results.names import HISTOGRAM
from autotest.results.store import ResultStore
from autotest.results.verdicts import Verdict


@pytest.fixture
def many(monkeypatch):
    """Processes of their own for as few trials as there are, and one task each."""
    monkeypatch.setattr(reading, "_MANY", 1)
    monkeypatch.setattr(reading, "BATCH_BYTES", 1)


def fill(directory, cases=6, first_rate=10):
    for rate in range(first_rate, first_rate + cases):
        for repetition in range(2):
            older.write(directory, older.name(rate, repetition), rate=rate, first_ns=1000 * rate + repetition)


def test_trials_come_by_infix_and_repetition_with_their_parameters_and_figures(tmp_path):
    for repetition in (10, 2):
        older.write(tmp_path, older.name(10, repetition), first_ns=5000 + repetition)
    results = read_results(tmp_path)
    assert [trial.name.repetition for trial in results.trials] == [2, 10] and not results.complaints
    trial = results.trials[0]
    assert dict(trial.parameters) == {
        "machine": "pcvm", "interface": "bridge", "qemu": "normal", "vhost": True, "ioregionfd": False,
        "reflector": "xdp", "rate": 10, "size": 60, "runtime": 30,
    }  # fmt: skip
    assert (trial.verdict, trial.reason, trial.accepted, trial.testbed, trial.started) == (Verdict.VALID, "", False, "", "")
    assert (trial.figures.sent, trial.figures.samples, trial.figures.p50_ns, trial.figures.max_ns) == (300_000, 200, 5101, 5201)
    assert trial.histogram().samples == 200 and "total 300000 packets" in trial.output() and trial.record() is None
    assert list(results.parameters) == list(trial.parameters) and results.parameters["rate"] == [10]


def test_named_test_cases_come_alone_and_in_their_order(tmp_path):
    fill(tmp_path, 3)
    results = read_results(tmp_path, [older.name(12).infix, older.name(10).infix, older.name(99).infix])
    assert [(trial.parameters["rate"], trial.name.repetition) for trial in results.trials] == [(12, 0), (12, 1), (10, 0), (10, 1)]
    assert results.others == 4


def test_a_recorded_trial_keeps_its_verdict_and_what_only_the_record_knows(tmp_path):
    example.add(tmp_path, example.BRIDGE, 10, 0, disturbed="link went down")
    name = older.name(10, 0)
    document = json.loads((tmp_path / name.trial).read_text())
    document |= {"testbed": {"name": "lab"}, "started": "2026-01-02T03:04:05+00:00", "accepted": {"at": "now", "by": "me"}}
    document["figures"]["seconds"] = 15.0
    (tmp_path / name.trial).write_text(json.dumps(document))
    (trial,) = read_results(tmp_path).trials
    assert (trial.verdict, trial.reason, trial.accepted) == (Verdict.DISTURBED, "link went down", True)
    assert (trial.testbed, trial.started) == ("lab", "2026-01-02T03:04:05+00:00")
    assert trial.figures.achieved_kpps == pytest.approx(20)


def test_an_acceptance_does_not_count_for_files_that_were_not_accepted(tmp_path):
    example.add(tmp_path, example.BRIDGE, 10, 0, disturbed="link went down")
    name = older.name(10, 0)
    document = json.loads((tmp_path / name.trial).read_text()) | {"accepted": {"at": "now", "by": "me"}}
    (tmp_path / name.trial).write_text(json.dumps(document))
    (tmp_path / name.histogram).write_text(sample.histogram(300))
    (trial,) = read_results(tmp_path).trials
    assert (trial.verdict, trial.accepted) == (Verdict.INCOMPLETE, False)


def test_several_processes_read_what_one_reads(tmp_path, many, monkeypatch, cache_home):
    fill(tmp_path, first_rate=50)
    example.fill(tmp_path)
    (tmp_path / older.name(50, 1).histogram).write_text("5,1\n4,1\n")
    together = read_results(tmp_path)
    shutil.rmtree(cache_home)
    monkeypatch.setattr(reading, "_MANY", 10**9)
    assert read_results(tmp_path) == together
    assert len(together.trials) == 22 and together.complaints


@pytest.mark.parametrize("end", ["killed", "raises"])
def test_what_a_process_does_not_do_is_done_without_it(tmp_path, many, monkeypatch, end):
    fill(tmp_path)
    parent = os.getpid()
    batch = reading._read_batch

    def fragile(directory, sources):
        if os.getpid() != parent and sources[0].name.repetition:
            if end == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            raise OSError("of this process alone")
        return batch(directory, sources)

    monkeypatch.setattr(reading, "_read_batch", fragile)
    results = read_results(tmp_path)
    assert len(results.trials) == 12 and not results.complaints
    assert {trial.verdict for trial in results.trials} == {Verdict.VALID}


def test_without_a_process_more_everything_is_read_in_this_one(tmp_path, many, monkeypatch):
    fill(tmp_path)

    def refused(*_):
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr("multiprocessing.context.ForkProcess.start", refused)
    assert len(read_results(tmp_path).trials) == 12


def test_no_process_is_left_when_the_reader_is_interrupted(tmp_path, many, monkeypatch):
    fill(tmp_path)

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(reading, "wait", interrupted)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(KeyboardInterrupt):
        read_results(tmp_path)
    assert multiprocessing.active_children() == []
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == before


def test_no_process_is_forked_beside_other_threads(tmp_path, many, monkeypatch):
    fill(tmp_path, 1)
    monkeypatch.setattr(reading, "_read_in_processes", lambda *_: pytest.fail("forked"))
    over = threading.Event()
    thread = threading.Thread(target=over.wait)
    thread.start()
    try:
        assert len(read_results(tmp_path).trials) == 2
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("number", [1, 10**9])
def test_a_newer_autotest_is_named_and_its_file(tmp_path, monkeypatch, number):
    monkeypatch.setattr(reading, "_MANY", number)
    fill(tmp_path, 2)
    (tmp_path / older.name(11).trial).write_text('{"version": 99}')
    with pytest.raises(ResultsError, match=f"{tmp_path}/{older.name(11).trial}: written by a newer autotest"):
        read_results(tmp_path)


def test_a_trial_that_is_committed_while_the_directory_is_read_is_no_trial_of_the_older_tool(tmp_path, monkeypatch):
    """Its JSON comes before its files, so it need not be in the listing in which they are."""
    example.add(tmp_path, example.BRIDGE, 10, 0, disturbed="link went down")
    record = tmp_path / older.name(10).trial
    kept = record.read_bytes()
    record.unlink()
    read = reading.read_trials

    def after_the_listing(directory, sources):
        record.write_bytes(kept)
        return read(directory, sources)

    monkeypatch.setattr("autotest.report.trials.read_trials", after_the_listing)
    assert [trial.verdict for trial in read_results(tmp_path).trials] == [Verdict.DISTURBED]


def test_files_that_vanish_while_the_directory_is_read_make_no_error(tmp_path, monkeypatch):
    fill(tmp_path, 2)
    read = reading.read_trials

    def after_the_listing(directory, sources):
        for path in directory.iterdir():
            path.unlink()
        return read(directory, sources)

    monkeypatch.setattr("autotest.report.trials.read_trials", after_the_listing)
    results = read_results(tmp_path)
    assert {trial.verdict for trial in results.trials} == {Verdict.INCOMPLETE} and len(results.complaints) == 4


def test_no_such_directory_or_one_that_cannot_be_listed_is_told(tmp_path):
    with pytest.raises(ResultsError, match="none: no such directory"):
        read_results(tmp_path / "none")
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="file: Not a directory"):
        read_results(tmp_path / "file")


def test_nothing_is_changed_by_reading(tmp_path):
    fill(tmp_path, 2)
    (tmp_path / older.name(10).histogram).write_text("1,")
    before = {path.name: (path.read_bytes(), path.stat()) for path in tmp_path.iterdir()}
    os.chmod(tmp_path, 0o555)
    for _ in range(2):
        read_results(tmp_path)
    os.chmod(tmp_path, 0o755)
    for name, (content, status) in before.items():
        now = (tmp_path / name).stat()
        assert (tmp_path / name).read_bytes() == content and now.st_mtime_ns == status.st_mtime_ns
    assert {path.name for path in tmp_path.iterdir()} == set(before)


def test_memory_does_not_grow_with_the_number_of_trials(tmp_path, monkeypatch):
    """Never more than one batch of histograms is there at once."""
    fill(tmp_path)
    monkeypatch.setattr(reading, "BATCH_BYTES", 4000)
    most = []
    batch = reading._read_batch
    monkeypatch.setattr(reading, "_read_batch", lambda directory, part: most.append(len(part)) or batch(directory, part))
    read_results(tmp_path)
    size = (tmp_path / older.name(10).file(HISTOGRAM)).stat().st_size
    assert sum(most) == 12 and max(most) == 4000 // size


def test_the_store_and_the_report_agree_on_what_is_recorded(tmp_path):
    example.fill(tmp_path)
    store = ResultStore(tmp_path)
    for trial in read_results(tmp_path).trials:
        assert trial.verdict == store.load(trial.name).verdict or trial.record() is None


def test_a_pipe_in_the_place_of_a_file_does_not_hold_the_reader_up(tmp_path):
    fill(tmp_path, 1)
    name = older.name(10)
    (tmp_path / name.histogram).unlink()
    os.mkfifo(tmp_path / name.histogram)
    started = time.monotonic()
    results = read_results(tmp_path)
    assert time.monotonic() - started < 5
    assert str(results.complaints[0]) == f"{name.histogram}: not a file that can be read"
    assert reading.read_file(str(tmp_path / name.histogram), 100) == b""


def test_the_collector_is_as_before_whatever_happens(tmp_path):
    def reading_nothing() -> None:
        with pytest.raises(ResultsError):
            read_results(tmp_path / "none")

    for call in (lambda: read_results(tmp_path), reading_nothing):
        call()
        assert gc.isenabled()
        gc.disable()
        call()
        assert not gc.isenabled()
        gc.enable()
