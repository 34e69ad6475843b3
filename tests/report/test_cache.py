import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import example
import older
import pytest
import sample_output as sample
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.report import cache, reading, trials
from autotest.report.trials import read_results
from autotest.results import signatures

TICK = 0.02  # seconds, in which the clock of the file system moves on


def settled_at_once(files, listed_ns):
    return signatures.are_settled(files, listed_ns, margin_ns=-(10**9))


@pytest.fixture
def settled(monkeypatch):
    """Files count as settled at once; a test must wait for a tick before it changes one."""
    monkeypatch.setattr(cache, "are_settled", settled_at_once)


@pytest.fixture
def read_anew(monkeypatch):
    """The names of the trials that were not taken from the cache, since the list was last cleared."""
    names = []
    read = reading.read_trials

    def noted(directory, sources):
        names.extend(str(source.name) for source in sources)
        return read(directory, sources)

    monkeypatch.setattr(trials, "read_trials", noted)
    return names


def without_cache(directory):
    before = os.environ["XDG_CACHE_HOME"]
    os.environ["XDG_CACHE_HOME"] = "/dev/null"
    try:
        return read_results(directory)
    finally:
        os.environ["XDG_CACHE_HOME"] = before


def fill(directory):
    for repetition in range(2):
        older.write(directory, older.name(10, repetition), first_ns=10_000 + repetition)
    example.add(directory, example.MACVTAP, 40, 0, sent_kpps=30)
    example.add(directory, example.HOST, 10, 0, disturbed="link went down")
    (directory / older.name(20).output).write_text("cut")


def the_file(cache_home):
    (path,) = (cache_home / "autotest" / "results").iterdir()
    return path


def test_an_unchanged_directory_is_not_read_twice(tmp_path, settled, read_anew):
    fill(tmp_path)
    first = read_results(tmp_path)
    assert len(read_anew) == 5 and len(first.complaints) == 1
    read_anew.clear()
    assert read_results(tmp_path) == first
    part = read_results(tmp_path, [older.name(10).infix])
    assert part.trials == tuple(trial for trial in first.trials if trial.name.infix == older.name(10).infix)
    assert read_anew == []


def test_files_changed_just_now_are_read_again(tmp_path, read_anew):
    fill(tmp_path)
    read_results(tmp_path)
    read_anew.clear()
    read_results(tmp_path)
    assert len(read_anew) == 5


@pytest.mark.default
def test_files_are_settled_after_two_seconds(tmp_path, read_anew):
    fill(tmp_path)
    time.sleep(2.1)
    read_results(tmp_path)
    read_anew.clear()
    read_results(tmp_path)
    assert read_anew == []


def test_the_cache_lies_in_the_users_folder_and_nothing_in_the_directory(tmp_path, settled, cache_home):
    fill(tmp_path)
    before = set(tmp_path.iterdir())
    read_results(tmp_path)
    assert set(tmp_path.iterdir()) == before
    assert the_file(cache_home).parent.stat().st_mode & 0o777 == 0o700


def test_without_the_variable_it_lies_in_the_home_directory(tmp_path, settled, monkeypatch):
    fill(tmp_path / "results")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CACHE_HOME", "not/absolute")
    read_results(tmp_path / "results")
    assert len(list((tmp_path / "home/.cache/autotest/results").iterdir())) == 1


def test_the_same_directory_by_another_name_has_the_same_cache(tmp_path, settled, read_anew, monkeypatch):
    fill(tmp_path / "results")
    (tmp_path / "link").symlink_to("results")
    read_results(tmp_path / "results")
    read_anew.clear()
    monkeypatch.chdir(tmp_path)
    for name in (Path("results"), Path("link"), tmp_path / "x" / ".." / "link"):
        (tmp_path / "x").mkdir(exist_ok=True)
        assert {trial.directory for trial in read_results(name).trials} == {name}
    assert read_anew == []


def test_a_copied_directory_is_read_on_its_own(tmp_path, settled, read_anew):
    fill(tmp_path / "a")
    read_results(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    read_anew.clear()
    read_results(tmp_path / "b")
    assert len(read_anew) == 5


def same_size_and_time(path):
    """What ``touch -d`` after an edit does: only the kernel's own time of the change tells."""
    status = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b",1\n", b",2\n", 1))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size and path.stat().st_mtime_ns == status.st_mtime_ns


def replaced(path):
    status = path.stat()
    other = path.with_name("other")
    other.write_bytes(path.read_bytes().replace(b",1\n", b",3\n", 1))
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.rename(path)


def appended(path):
    with open(path, "ab") as file:
        file.write(b"50000,1\n")


def restored(path):
    """With the right content again, once it was read without it."""
    content = path.read_bytes()
    path.write_bytes(b"")
    read_results(path.parent)
    time.sleep(TICK)
    path.write_bytes(content)


CHANGES = {
    "same size and time": same_size_and_time,
    "replaced by another of the same time": replaced,
    "appended to": appended,
    "cut off": lambda path: os.truncate(path, path.stat().st_size - 1),
    "emptied": lambda path: os.truncate(path, 0),
    "removed": lambda path: path.unlink(),
    "a link to another": lambda path: (path.unlink(), path.symlink_to(older.name(10, 0).histogram)),
    "a folder": lambda path: (path.unlink(), path.mkdir()),
    "restored": restored,
}


@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_seen(tmp_path, settled, read_anew, change):
    fill(tmp_path)
    before = read_results(tmp_path)
    time.sleep(TICK)
    read_anew.clear()
    CHANGES[change](tmp_path / older.name(10, 1).histogram)
    after = read_results(tmp_path)
    assert after == without_cache(tmp_path)
    assert str(older.name(10, 1)) in read_anew and str(older.name(10, 0)) not in read_anew[:1]
    assert (after == before) == (change == "restored")


def test_a_json_that_appears_or_goes_is_seen(tmp_path, settled):
    example.add(tmp_path, example.HOST, 10, 0, disturbed="link went down")
    (recorded,) = read_results(tmp_path).trials
    record = tmp_path / recorded.name.trial
    content = record.read_bytes()
    time.sleep(TICK)
    record.unlink()
    (alone,) = read_results(tmp_path).trials
    assert (recorded.verdict, alone.verdict) == ("disturbed", "valid")
    time.sleep(TICK)
    record.write_bytes(content)
    assert read_results(tmp_path).trials == (recorded,)


def test_a_change_while_the_directory_is_read_is_seen_the_next_time(tmp_path, settled, monkeypatch):
    fill(tmp_path)
    path = tmp_path / older.name(10, 0).histogram
    read = reading.read_trials

    def then_changed(directory, sources):
        found = read(directory, sources)
        same_size_and_time(path)
        return found

    time.sleep(TICK)
    monkeypatch.setattr(trials, "read_trials", then_changed)
    read_results(tmp_path)
    monkeypatch.setattr(trials, "read_trials", read)
    assert read_results(tmp_path) == without_cache(tmp_path)


@pytest.mark.default
def test_files_from_the_future_are_not_believed(tmp_path, read_anew):
    """The clock was set back after they were written: a change may get any time, the one that is known as well."""
    now = time.time_ns()
    files = {"output": [1, 1, 1, now - 10**10, now - 10**10], "histogram": [1, 2, 1, now + 10**10, now - 10**10]}
    assert not signatures.are_settled(files.values(), now)
    assert signatures.are_settled([files["output"]], now)
    fill(tmp_path)
    for path in tmp_path.iterdir():
        os.utime(path, (time.time() + 10**6, time.time() + 10**6))
    time.sleep(2.1)
    read_results(tmp_path)
    read_anew.clear()
    read_results(tmp_path)
    assert len(read_anew) == 5


GARBAGE = {
    "nothing": b"",
    "no JSON": b"\x00\xff garbage",
    "deep": b"[" * 100_000,
    "other JSON": b'{"x": 1}\n{}',
    "a list": b"[]\n[]",
    "a number": b"1\n1",
}


@pytest.mark.parametrize("content", GARBAGE)
def test_garbage_in_its_place_is_no_cache(tmp_path, settled, cache_home, read_anew, content):
    fill(tmp_path)
    expected = read_results(tmp_path)
    the_file(cache_home).write_bytes(GARBAGE[content])
    read_anew.clear()
    assert read_results(tmp_path) == expected and len(read_anew) == 5
    read_anew.clear()
    assert read_results(tmp_path) == expected and not read_anew  # written anew


def test_a_damaged_cache_is_no_cache(tmp_path, settled, cache_home, caplog):
    fill(tmp_path)
    expected = read_results(tmp_path)
    whole = the_file(cache_home).read_bytes()
    dice = random.Random(3)
    caplog.set_level(logging.INFO)
    for _ in range(60):
        damaged = bytearray(whole)
        if dice.random() < 0.5:
            del damaged[dice.randrange(len(whole)) :]
        else:
            damaged[dice.randrange(len(whole))] ^= 1 << dice.randrange(8)
        the_file(cache_home).write_bytes(damaged)
        assert read_results(tmp_path) == expected
    assert not caplog.records


@pytest.mark.parametrize("row", ["3", '["x"]', '["valid", "", 0, [1], "", "", "", []]'])
def test_a_cache_with_a_right_checksum_and_wrong_entries_is_no_cache(tmp_path, settled, cache_home, row):
    fill(tmp_path)
    expected = read_results(tmp_path)
    header, body = the_file(cache_home).read_bytes().split(b"\n")
    name, (files, _) = next(iter(json.loads(body).items()))
    forged = f'{{"{name}": [{json.dumps(files)}, {row}]}}'.encode()
    changed = json.loads(header) | {"sha256": cache.sha256(forged)}
    the_file(cache_home).write_bytes(json.dumps(changed).encode() + b"\n" + forged)
    assert read_results(tmp_path) == expected


@pytest.mark.parametrize("kind", ["directory", "pipe", "in the way", "deleted"])
def test_a_cache_that_cannot_be_read_or_written_changes_nothing(tmp_path, settled, cache_home, kind):
    fill(tmp_path)
    expected = read_results(tmp_path)
    path = the_file(cache_home)
    path.unlink()
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "in the way":
        shutil.rmtree(cache_home / "autotest")
        (cache_home / "autotest").write_text("")
    assert read_results(tmp_path) == expected
    assert read_results(tmp_path) == expected


def test_another_reader_or_other_tolerances_read_anew(tmp_path, settled, read_anew, monkeypatch):
    fill(tmp_path)
    read_results(tmp_path)
    for change in ("_code", "tolerances"):
        if change == "_code":
            monkeypatch.setattr(cache, "_code", lambda: "of another version")
        else:
            monkeypatch.setattr(cache.verdicts, "DEFAULT_TOLERANCES", "others")
        read_anew.clear()
        read_results(tmp_path)
        assert len(read_anew) == 5


def test_the_code_that_reads_is_known_by_its_sources(tmp_path, monkeypatch):
    """A changed parser must not find what another one read."""
    cache._code.cache_clear()
    before = cache._code()
    copied = tmp_path / "results"
    shutil.copytree(Path(cache.results.__path__[0]), copied)
    monkeypatch.setattr(cache.results, "__path__", [str(copied)])
    cache._code.cache_clear()
    assert cache._code() == before
    with open(copied / "moongen.py", "a", encoding="utf-8") as file:
        file.write("\n")
    cache._code.cache_clear()
    assert cache._code() != before
    monkeypatch.undo()
    cache._code.cache_clear()


def test_what_is_gone_is_forgotten(tmp_path, settled, cache_home):
    fill(tmp_path)
    read_results(tmp_path)
    for path in tmp_path.glob("*macvtap*"):
        path.unlink()
    read_results(tmp_path, [older.name(10).infix])
    entries = json.loads(the_file(cache_home).read_bytes().split(b"\n")[1])
    assert len(entries) == 4 and not any("macvtap" in name for name in entries)


def test_a_cache_that_nobody_wrote_for_long_is_removed(tmp_path, settled, cache_home):
    for name in ("a", "b", "c"):
        fill(tmp_path / name)
    read_results(tmp_path / "a")
    old = time.time() - cache.UNUSED_S - 10
    os.utime(the_file(cache_home), (old, old))
    read_results(tmp_path / "b")
    kept = the_file(cache_home)
    read_results(tmp_path / "c")
    assert kept.exists() and len(list(kept.parent.iterdir())) == 2


@pytest.mark.default
def test_several_processes_at_once_agree(tmp_path, cache_home):
    fill(tmp_path)
    time.sleep(2.1)
    program = "import sys\nfrom pathlib import Path\nfrom autotest.report.trials import read_results\n"
    program += "for _ in range(20):\n    print(read_results(Path(sys.argv[1])).trials)\n"
    command = [sys.executable, "-c", program, str(tmp_path)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for _ in range(10):
        time.sleep(0.03)
        for path in cache_home.glob("autotest/results/*"):
            path.unlink(missing_ok=True)
    outputs = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert len({line for output in outputs for line in output.splitlines()}) == 1
    assert not list(cache_home.glob("autotest/results/.autotest-tmp*"))


ACTION = st.sampled_from([*sorted(CHANGES.keys() - {"a folder", "restored"}), "written", "cache lost"])


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(0, 2), ACTION), max_size=5))
def test_with_a_cache_and_without_one_the_same_is_read(actions):
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        directory = Path(folder) / "results"
        patch.setenv("XDG_CACHE_HOME", f"{folder}/cache")
        patch.setattr(cache, "are_settled", settled_at_once)
        for repetition in range(3):
            older.write(directory, older.name(10, repetition), first_ns=10_000 + repetition)
        for repetition, action in actions:
            assert read_results(directory) == without_cache(directory)
            time.sleep(TICK)
            path = directory / older.name(10, repetition).histogram
            if action == "cache lost":
                shutil.rmtree(f"{folder}/cache")
            elif action == "written":
                path.unlink(missing_ok=True)
                path.write_text(sample.histogram(200, 20_000))
            elif path.is_file() and not path.is_symlink() and path.stat().st_size:
                CHANGES[action](path)
        assert read_results(directory) == without_cache(directory) == read_results(directory)
