"""Notifications: real commands that are told, hang, fail or do not exist, and what of that a run notices: nothing."""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fake_campaign
import pytest
from labtest import interruptible

from autotest.cli.notification import (
    DEADLINE,
    PAUSE,
    Notification,
    notified,
    notify_command,
)
from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LoadGenConfig,
    LocalConfig,
    Testbed,
    load_testbed,
)
from autotest.errors import ConfigError, TestbedError, UsageError
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Section
from autotest.run.campaign import Campaign
from autotest.run.observer import Observer
from autotest.run.runner import End, Failure, Outcome, Summary

ROOT = Path(__file__).resolve().parents[2]
ABOUT: dict[str, Any] = {"hostname": "river", "testbed": "/a/autotest.conf", "tests": [], "output_directories": []}
TELLING = '#!/bin/sh\ncat >>"$(dirname "$0")/told"\necho " $AUTOTEST_EVENT $AUTOTEST_OUTCOME" >>"$(dirname "$0")/told"\n'


@pytest.fixture(autouse=True)
def closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread is left of a notification that a test does not end."""
    made: list[Notification] = []
    make = Notification.__init__

    def noted(self: Notification, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        made.append(self)

    monkeypatch.setattr(Notification, "__init__", noted)
    yield
    for notification in made:
        notification.close()


@pytest.fixture
def interrupts() -> Iterator[None]:
    """SIGINT interrupts, also where the tests run in the background of a shell, which has it ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def program(folder: Path, text: str, name: str = "tell") -> str:
    """A program that a test calls; its path."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def told(folder: Path) -> list[dict[str, Any]]:
    """What the program was told, the first call first."""
    path = folder / "told"
    found = []
    for line in path.read_text().splitlines(keepends=True) if path.exists() else ():
        if not line.endswith("\n"):
            break  # it is being written
        summary, event, outcome = line.rstrip("\n").rsplit(" ", 2)
        found.append(json.loads(summary))
        assert (found[-1]["event"], found[-1]["outcome"]) == (event, outcome)
    return found


def soon(condition: Callable[[], object], timeout: float = 10) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def a_testbed(folder: Path, command: tuple[str, ...] = ()) -> Testbed:
    servers = HostConfig(fqdn="localhost"), GuestConfig(fqdn="nobody.invalid"), LoadGenConfig(fqdn="localhost")
    return Testbed(folder / "autotest.conf", *servers, LocalConfig(notify_command=command))


def campaign(folder: Path, repetitions: int = 4) -> Campaign:
    """A plan of four trials, none of them done."""
    lists: dict[str, tuple[Any, ...]] = {parameter.name: parameter.default or () for parameter in KIND.parameters}
    lists |= {"machine": ("host",), "interface": ("pnic",), "reflector": ("xdp",), "rate": (10,), "size": (60,), "runtime": (1,)}
    settings = {"outputdir": folder / "out", "repetitions": repetitions}
    return Campaign(KIND, [Section("s", lists, settings, folder / "tests.conf")])


# -- what is told ------------------------------------------------------------------------------------------


def test_the_end_of_a_run_is_told_with_its_counts_failures_and_files(tmp_path: Path) -> None:
    def run(observer: Observer) -> int:
        observer.begins(4)
        for end in (End.DONE, End.FAILED, End.INVALID):
            observer.ends(Outcome("name", "group", 1.0, "", end))
        observer.ended(Summary(1, [Failure("a", "loadgen: \x1b[31mhangs\n", 2)]), "")
        return 1

    assert notified([program(tmp_path, TELLING)], a_testbed(tmp_path), campaign(tmp_path), run) == 1
    [summary] = told(tmp_path)
    assert summary["version"] == 1 and summary["measurement"] == "load-latency" and summary["hostname"] == os.uname().nodename
    assert (summary["event"], summary["outcome"], summary["exit_code"], summary["problem"]) == ("end", "failed", 1, "")
    assert summary["counts"] == {"total": 4, "done": 1, "failed": 1, "invalid": 1, "left": 1}
    assert summary["failures"] == [{"name": "a", "reason": "loadgen: hangs\n", "trials": 2}] and summary["more_failures"] == 0
    assert summary["testbed"] == str(tmp_path / "autotest.conf") and summary["tests"] == [str(tmp_path / "tests.conf")]
    assert summary["output_directories"] == [str(tmp_path / "out")]
    assert summary["started"] <= summary["ended"] and 0 <= summary["seconds"] < 10
    assert re.fullmatch(r"autotest on \S+: failed: 1 of 4 trials done, 1 failed, 1 invalid, 1 left, after \d s", summary["text"])


def test_the_documentation_lists_every_key_and_limit(tmp_path: Path) -> None:
    notification = Notification([program(tmp_path, TELLING)], {})
    notification._about = dict.fromkeys(("autotest", "hostname", "measurement", "testbed", "tests", "output_directories"), "")
    notification.end("finished", 0)
    [summary] = told(tmp_path)
    page = (ROOT / "docs/notifications.md").read_text()
    rows = {name for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)}
    assert rows - {"AUTOTEST_EVENT", "AUTOTEST_OUTCOME", "AUTOTEST_TEXT"} == set(summary)
    assert f"{DEADLINE:g} s" in page and PAUSE == 60 and "once a minute" in page


@pytest.mark.parametrize(
    ("error", "outcome", "code", "problem"),
    [(TestbedError("host: cannot be reached"), "error", 3, "host: cannot be reached"), (KeyboardInterrupt(), "interrupted", 130, "interrupted"),
     (OSError(28, "No space left"), "error", 1, "[Errno 28] No space left"), (ValueError("a bug"), "error", 1, "ValueError: a bug")],
    ids=["testbed", "Ctrl-C", "disk", "bug"],
)  # fmt: skip
def test_what_ended_a_run_early_is_told_and_goes_on(
    tmp_path: Path, error: BaseException, outcome: str, code: int, problem: str
) -> None:
    def run(observer: Observer) -> int:
        raise error

    with pytest.raises(type(error)):
        notified([program(tmp_path, TELLING)], a_testbed(tmp_path), campaign(tmp_path), run)
    [summary] = told(tmp_path)
    assert (summary["event"], summary["outcome"], summary["exit_code"], summary["problem"]) == ("end", outcome, code, problem)
    assert summary["counts"] == {"total": 4, "done": 0, "failed": 0, "invalid": 0, "left": 4}


def test_a_run_with_nothing_to_do_is_not_told(tmp_path: Path) -> None:
    assert notified([program(tmp_path, TELLING)], a_testbed(tmp_path), campaign(tmp_path), lambda observer: 0) == 0
    assert told(tmp_path) == []


@pytest.mark.default
def test_a_failure_is_told_at_once_and_what_follows_within_the_pause_together(tmp_path: Path) -> None:
    notification = Notification([program(tmp_path, TELLING)], ABOUT, pause=0.5)
    notification.begins(100)
    notification.fails(Failure("first", "r"))
    soon(lambda: told(tmp_path))
    begin = time.monotonic()
    for number in range(30):
        notification.fails(Failure(f"f{number}", "r" * 2000))
    soon(lambda: len(told(tmp_path)) == 2)
    assert time.monotonic() - begin > 0.2
    time.sleep(0.7)
    first, second = told(tmp_path)
    assert [failure["name"] for failure in first["failures"]] == ["first"] and first["exit_code"] is first["ended"] is None
    assert len(second["failures"]) == 20 and second["more_failures"] == 11 and len(second["failures"][1]["reason"]) < 1100
    notification.fails(Failure("last", "r"))
    notification.end("failed", 1)  # tells of the last one, too: no call for that alone
    assert [summary["event"] for summary in told(tmp_path)] == ["failure", "failure", "end"]
    assert told(tmp_path)[2]["more_failures"] == 12


def test_the_first_failure_is_counted_in_the_call_that_tells_of_it(tmp_path: Path) -> None:
    notification = Notification([program(tmp_path, TELLING)], ABOUT)
    notification.begins(3)
    notification.fails(Failure("first", "r"))
    time.sleep(0.05)  # its record is written
    notification.ends(Outcome("first", "s", 1.0, "r", End.FAILED))
    soon(lambda: told(tmp_path))
    (summary,) = told(tmp_path)
    assert (summary["counts"]["failed"], summary["counts"]["left"], len(summary["failures"])) == (1, 2, 1)
    notification.end("failed", 1)


# -- commands that do not do what they should --------------------------------------------------------------


@pytest.mark.default
def test_a_command_that_hangs_delays_nothing_and_is_ended_with_all_that_it_started(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    command = program(tmp_path, f"#!/bin/sh\nsleep 77 &\necho $! >{tmp_path}/pid\nwait\n")
    notification = Notification([command], ABOUT, pause=0, deadline=0.5)
    begin = time.monotonic()
    notification.fails(Failure("a", "r"))
    notification.ends(Outcome("a", "", 1.0, "r", End.FAILED))
    assert time.monotonic() - begin < 0.1
    soon((tmp_path / "pid").exists)
    notification.end("failed", 1)
    assert 0.9 < time.monotonic() - begin < 5  # both calls had their time
    assert caplog.messages == ["the notification was not sent: tell: it did not end within 0.5 s and was ended"] * 2
    child = Path("/proc", (tmp_path / "pid").read_text().strip())
    soon(lambda: not child.exists() or "Z" in (child / "stat").read_text().rpartition(")")[2])


@pytest.mark.parametrize(
    ("text", "warning"),
    [("#!/bin/sh\necho of no use\necho no such chat >&2\nexit 22\n", "exit code 22: of no use\nno such chat"),
     ("#!/bin/sh\nkill -9 $$\n", "exit code -9"), ("no program\n", r"\[Errno 8\] Exec format error: .*"),
     ("#!/bin/sh\nexit 0\n", None), ("#!/bin/sh\nyes | head -c 500000\n", None),
     ("#!/bin/sh\nsleep 5 &\nexit 0\n", None)],
    ids=["fails", "killed", "no program", "reads nothing", "says much", "leaves something in the background"],
)  # fmt: skip
def test_a_command_that_fails_is_a_warning_and_one_that_ends_is_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, warning: str | None
) -> None:
    caplog.set_level(logging.WARNING)
    notification = Notification([program(tmp_path, text)], ABOUT)
    begin = time.monotonic()
    notification.end("finished", 0)
    assert time.monotonic() - begin < 4
    assert len(caplog.messages) == (warning is not None)
    if warning:
        assert re.fullmatch(f"the notification was not sent: tell: {warning}", caplog.messages[0], re.DOTALL)


@pytest.mark.parametrize("about", ["the end", "a failure"])
@pytest.mark.usefixtures("interrupts")
def test_an_interruption_ends_the_waiting_for_the_last_call_and_the_command(tmp_path: Path, about: str) -> None:
    command = program(tmp_path, f"#!/bin/sh\necho $$ >{tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nsleep 77\n")
    notification = Notification([command], ABOUT)
    if about == "a failure":
        notification.fails(Failure("a", "r"))
        soon((tmp_path / "pid").exists)

    def interrupt() -> None:
        soon((tmp_path / "pid").exists)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        notification.end("finished", 0)
    assert time.monotonic() - begin < 10
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


@pytest.mark.default
def test_an_interruption_while_the_first_one_is_told_ends_the_command_too(tmp_path: Path) -> None:
    command = program(tmp_path, f"#!/bin/sh\necho $$ >{tmp_path}/new\nmv {tmp_path}/new {tmp_path}/pid\nsleep 77\n")
    arguments = [*fake_campaign.write(tmp_path), "--notify", command]
    environment = os.environ | {"PYTHONPATH": str(ROOT), fake_campaign.TRIAL_SECONDS: "30"}
    with subprocess.Popen(
        [sys.executable, fake_campaign.__file__, *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        preexec_fn=interruptible,
    ) as process:
        assert process.stderr
        next(line for line in process.stderr if "set up in" in line)
        process.send_signal(signal.SIGINT)
        soon((tmp_path / "pid").exists)
        time.sleep(0.6)  # for one reason the kernel may send two signals
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        assert process.wait(10) == 130
    assert "journal" not in said and said.endswith("ERROR interrupted\n")
    assert not Path("/proc", (tmp_path / "pid").read_text().strip()).exists()


def run_of_fake(folder: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A campaign that tells; on machines of which nothing is wanted."""
    arguments = [*fake_campaign.write(folder), "--notify", program(folder, TELLING), *options]
    environment = {"PYTHONPATH": str(ROOT), fake_campaign.TRIAL_SECONDS: "0"} | environment
    command = [sys.executable, fake_campaign.__file__, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=os.environ | environment, check=False)


@pytest.mark.default
def test_in_a_limited_run_the_counts_make_up_the_total_also_where_a_set_up_is_given_up(tmp_path: Path) -> None:
    assert run_of_fake(tmp_path, "--limit", "2", **{fake_campaign.BROKEN_INTERFACE: "bridge"}).returncode == 1
    summary = told(tmp_path)[-1]
    assert summary["counts"] == {"total": 2, "done": 1, "failed": 1, "invalid": 0, "left": 0}
    [failure] = summary["failures"]
    assert failure["reason"] == "no such link" and failure["trials"] == 2


@pytest.mark.default
def test_what_cannot_be_undone_in_the_end_is_a_failure(tmp_path: Path) -> None:
    assert run_of_fake(tmp_path, **{fake_campaign.STUCK: "yes"}).returncode == 1
    summary = told(tmp_path)[-1]
    assert summary["outcome"] == "failed" and summary["counts"]["done"] == summary["counts"]["total"] == 4
    assert summary["failures"] == [
        {"name": "undoing what was set up", "reason": "cannot undo host: link br-test: it is stuck", "trials": 0}
    ]


# -- which command -----------------------------------------------------------------------------------------


def test_the_option_comes_before_the_key_and_an_empty_one_means_none(tmp_path: Path) -> None:
    program(tmp_path, TELLING)
    described = a_testbed(tmp_path, ("./tell", "a b"))
    assert notify_command(None, described) == (str(tmp_path / "tell"), "a b")  # counts from autotest.conf
    program_there, *arguments = notify_command("sh -c 'exit 1'", described)
    assert Path(program_there).name == "sh" and Path(program_there).is_absolute() and arguments == ["-c", "exit 1"]
    assert notify_command("", described) == () == notify_command(None, a_testbed(tmp_path))


def test_a_command_that_cannot_be_run_is_an_error_that_names_where_it_stands(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    with pytest.raises(ConfigError, match=r"autotest.conf \[local\] notify_command: there is no program ./text here"):
        notify_command(None, a_testbed(tmp_path, ("./text",)))
    with pytest.raises(UsageError, match="--notify: there is no program no-such-program here"):
        notify_command("no-such-program --now", a_testbed(tmp_path))
    with pytest.raises(UsageError, match="--notify: .* is not a command line: no closing quotation"):
        notify_command("mail 'x", a_testbed(tmp_path))


EXAMPLES = re.findall(r"^ *notify_command = (.*)$", (ROOT / "docs/notifications.md").read_text(), re.MULTILINE)


@pytest.mark.parametrize("example", EXAMPLES or ["none"])
def test_each_example_of_the_documentation_is_a_command_as_autotest_conf_reads_it(tmp_path: Path, example: str) -> None:
    (tmp_path / "autotest.conf").write_text(CONF.format(command=example))
    program, *arguments = load_testbed(tmp_path / "autotest.conf", ROOT).local.notify_command
    assert program in ("sh", "mail", "/home/me/bin/tell-me") and len(EXAMPLES) == 6
    if program == "sh":
        option, script = arguments
        assert option == "-c" and subprocess.run(["sh", "-n", "-c", script], check=False).returncode == 0
        assert "$$" not in script


# -- the command line --------------------------------------------------------------------------------------

CONF = """\
[local]
notify_command = {command}
[host]
fqdn = nobody.invalid
test_iface = eth0
test_iface_mac = 52:54:00:00:00:01
xdp_reflector_dir = /x
[guest]
fqdn = nobody.invalid2
[loadgen]
fqdn = nobody.invalid3
test_iface = eth0
test_iface_mac = 52:54:00:00:00:03
moongen_dir = /m
moonprogs_dir = /m
"""
TESTS = """\
[lat]
machines = host
interfaces = pnic
reflectors = xdp
rates = 10
sizes = 60
runtimes = 1
repetitions = 3
outputdir = out
"""


def autotest(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "autotest", "test-load-lat-file", *arguments], cwd=folder, capture_output=True, text=True,
        timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "state")},
        check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    program(tmp_path, TELLING)
    (tmp_path / "autotest.conf").write_text(CONF.format(command="./tell 'and an argument'"))
    (tmp_path / "tests.conf").write_text(TESTS)
    return tmp_path


@pytest.mark.default
def test_a_run_whose_testbed_is_gone_is_told_and_a_dry_run_is_not(folder: Path) -> None:
    assert autotest(folder, "--dry-run").returncode == 0 and told(folder) == []
    ended = autotest(folder)
    assert ended.returncode == 3, ended.stderr
    [summary] = told(folder)
    assert summary["outcome"] == "error" and summary["exit_code"] == 3 and "nobody.invalid" in summary["problem"]
    assert summary["counts"]["left"] == 3
    assert autotest(folder, "--notify", "").returncode == 3 and len(told(folder)) == 1


@pytest.mark.default
def test_a_mistake_that_keeps_a_run_from_beginning_is_told(folder: Path) -> None:
    (folder / "tests.conf").write_text(TESTS.replace("rates", "rats"))
    ended = autotest(folder)
    assert ended.returncode == 2 and "rats" in ended.stderr
    [summary] = told(folder)
    assert (summary["event"], summary["outcome"], summary["exit_code"]) == ("end", "error", 2) and "rats" in summary["problem"]
    assert summary["tests"] == [str(folder / "tests.conf")] and summary["testbed"] == str(folder / "autotest.conf")
    assert autotest(folder, "--dry-run").returncode == 2 and len(told(folder)) == 1
    (folder / "autotest.conf").write_text("[hots]\n")
    assert autotest(folder).returncode == 2 and len(told(folder)) == 1, "nobody knows whom to tell"
    assert autotest(folder, "--notify", "./tell").returncode == 2 and "hots" in told(folder)[-1]["problem"]


@pytest.mark.default
def test_a_missing_program_is_found_before_anything_is_touched(folder: Path) -> None:
    ended = autotest(folder, "--notify", "no-such-program")
    assert ended.returncode == 2 and "--notify: there is no program no-such-program here" in ended.stderr
    (folder / "tell").unlink()
    ended = autotest(folder)
    assert ended.returncode == 2 and "autotest.conf [local] notify_command: there is no program ./tell here" in ended.stderr
    assert "Traceback" not in ended.stderr and not (folder / "out").exists() and not (folder / "state").exists()
