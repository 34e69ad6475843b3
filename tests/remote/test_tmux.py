"""tmux sessions on a real tmux server with an own socket, through libtmux and through the tmux command."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from autotest.errors import AutotestError, WaitTimeout
from autotest.remote.local import LocalTransport
from autotest.remote.tmux import Session, SessionError
from autotest.remote.transport import Result, Transport
from autotest.remote.wait import wait_for

MakeSession = Callable[..., Session]


@pytest.fixture(params=["local", "ssh"])
def make_session(request: pytest.FixtureRequest, tmux_socket: str, tmp_path: Path) -> MakeSession:
    """Makes sessions on one socket of a machine."""
    transport: Transport = LocalTransport("near")
    if request.param == "ssh":
        transport = request.getfixturevalue("shared_ssh")

    def make(name: str = "guest", **how: object) -> Session:
        return Session(transport, tmux_socket, name, str(tmp_path), **how)  # type: ignore[arg-type]

    return make


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_output_and_exit_code_are_known(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", 'printf "%s\\n" "$@"; echo err >&2; exit 3', "sh", "a 'b'", "$(c)", "ü;"])
    assert session.wait(5) == 3 == session.exit_code()
    assert session.output() == "a 'b'\n$(c)\nü;\nerr\n"
    assert session.tail(2) == "ü;\nerr"


def test_nothing_is_known_of_a_session_that_never_was(make_session: MakeSession) -> None:
    session = make_session()
    assert not session.exists() and session.exit_code() is None and session.pid() is None and session.output() == ""
    session.stop()


def test_names_are_exact(make_session: MakeSession) -> None:
    other = make_session("guest2")
    other.start(["sleep", "60"])
    session = make_session("guest")
    assert not session.exists()
    session.stop()
    assert other.exists()
    other.stop()
    assert not other.exists()


def test_the_pid_is_that_of_the_program(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", "echo $$; exec sleep 60"])
    session.wait_for_output("\n", 5)
    pid = session.pid()
    assert pid == int(session.output())
    session.stop()
    assert not alive(pid)


def test_a_session_is_not_started_twice(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    with pytest.raises(SessionError, match="already running"):
        make_session().start(["sleep", "60"])
    assert session.exists() and session.exit_code() is None
    session.stop()


def test_a_session_can_be_started_as_soon_as_the_one_before_has_ended(make_session: MakeSession) -> None:
    session = make_session()
    for number in range(8):
        session.start(["sh", "-c", f"exit {number}"])
        assert session.wait(5) == number


def test_output_is_complete_when_the_exit_code_is_there(make_session: MakeSession) -> None:
    session = make_session()
    for number in range(5):
        session.start(["sh", "-c", f"seq 20000; exit {number}"])
        assert session.wait(10) == number
        assert session.output().endswith("\n20000\n")


def test_stop_sends_the_signal_and_the_program_can_say_good_bye(make_session: MakeSession, tmp_path: Path) -> None:
    session = make_session(end_signal=signal.SIGINT)
    script = "trap 'echo bye >\"$0\"; exit 7' INT; echo ready; while :; do sleep 0.02; done"
    session.start(["sh", "-c", script, str(tmp_path / "said")])
    session.wait_for_output("ready", 5)
    assert session.stop() is True
    assert (tmp_path / "said").read_text() == "bye\n"
    assert not session.exists()


def test_a_session_that_was_stopped_leaves_no_file(make_session: MakeSession, tmp_path: Path) -> None:
    before = set(tmp_path.iterdir())
    session = make_session()
    session.start(["sleep", "60"])
    assert session.stop() is True
    assert session.stop() is False
    assert {path for path in tmp_path.iterdir() if path.name.startswith("guest")} <= before


def test_an_end_by_the_tmux_server_is_noticed_and_says_so(make_session: MakeSession, tmux_socket: str) -> None:
    session = make_session()
    session.start(["sh", "-c", "echo working; exec sleep 60"])
    session.wait_for_output("working", 5)
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], check=True)
    start = time.monotonic()
    with pytest.raises(SessionError, match="(?s)guest is gone and left no exit code.*tmux.*working"):
        session.wait(30)
    assert time.monotonic() - start < 5


def test_a_program_that_outlives_its_tmux_server_is_known_and_ended(make_session: MakeSession, tmux_socket: str) -> None:
    session = make_session()
    session.start(["sh", "-c", "trap '' HUP; echo ready; while :; do sleep 0.02; done"])
    session.wait_for_output("ready", 5)
    pid = session.pid()
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], check=True)
    assert session.is_running() and pid and alive(pid)
    assert session.stop() is True
    assert not alive(pid) and not session.is_running()


def test_a_stopped_program_is_told_apart_from_a_slow_one_and_ended(make_session: MakeSession) -> None:
    session = make_session(grace=0.2)
    session.start(["sh", "-c", "echo ready; exec sleep 60"])
    session.wait_for_output("ready", 5)
    pid = session.pid()
    assert pid
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(WaitTimeout, match="did not end within 0.3 s: its process is stopped"):
        session.wait(0.3)
    session.stop()
    assert not alive(pid)


def test_the_process_of_somebody_else_that_got_the_same_id_is_left_alone(make_session: MakeSession, tmp_path: Path) -> None:
    session = make_session()
    with subprocess.Popen(["sleep", "60"]) as foreign:
        (tmp_path / "guest.pid").write_text(f"{foreign.pid} 1\n")
        assert session.state() is None and session.stop() is False
        assert foreign.poll() is None
        foreign.kill()


def test_a_tmux_server_that_hangs_is_an_error(tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autotest.remote.tmux._TMUX_TIMEOUT", 0.3)
    session = Session(LocalTransport("near"), tmux_socket, "guest", str(tmp_path))
    session.start(["sleep", "60"])
    shown = subprocess.run(["tmux", "-S", tmux_socket, "display-message", "-p", "#{pid}"], capture_output=True, check=True)
    os.kill(int(shown.stdout), signal.SIGSTOP)
    try:
        with pytest.raises(SessionError, match="tmux has-session: the tmux server does not answer within 0.3 s"):
            session.exists()
    finally:
        os.kill(int(shown.stdout), signal.SIGCONT)
    assert session.stop() is True


def test_a_session_with_a_damaged_file_is_ended_all_the_same(make_session: MakeSession, tmp_path: Path) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    wait_for(session.pid, "the start", 5)
    pid = session.pid()
    (tmp_path / "guest.pid").write_text("no number")
    assert session.stop() is True
    wait_for(lambda: not alive(pid or 0), "the end", 5)


def test_a_clock_that_is_set_meanwhile_is_noticed(make_session: MakeSession, tmp_path: Path) -> None:
    session = make_session()
    session.start(["sleep", "0.2"])
    assert session.wait(5) == 0
    jump, duration = session.clock_jump(), session.duration()
    assert jump is not None and abs(jump) < 0.1 and duration and 0.1 < duration < 2
    code, wall, *others = (tmp_path / "guest.exit").read_text().split()
    (tmp_path / "guest.exit").write_text(" ".join([code, str(float(wall) - 3600), *others]))
    jump = session.clock_jump()
    assert jump is not None and abs(jump - 3600) < 0.2


def test_a_program_that_ignores_the_signal_is_killed_after_its_grace(make_session: MakeSession) -> None:
    session = make_session(end_signal=signal.SIGINT, grace=0.2)
    session.start(["sh", "-c", "trap '' INT TERM HUP; echo ready; while :; do sleep 0.02; done"])
    session.wait_for_output("ready", 5)
    pid = session.pid()
    assert pid
    start = time.monotonic()
    session.stop()
    assert 0.2 <= time.monotonic() - start < 3
    assert not alive(pid) and not session.exists()


def test_stopping_twice_is_fine(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    session.stop()
    session.stop()


def test_stop_right_after_the_start_leaves_no_process(make_session: MakeSession) -> None:
    marker = f"7{time.time_ns()}"
    session = make_session()
    for _ in range(3):
        session.start(["sh", "-c", f"trap '' HUP; exec sleep {marker}"])
        session.stop()
    time.sleep(0.05)
    found = subprocess.run(["pgrep", "-f", f"^sleep {marker}"], capture_output=True, text=True, check=False).stdout.split()
    for pid in found:
        os.kill(int(pid), signal.SIGKILL)
    assert found == []


def test_a_session_that_has_ended_but_is_kept_by_the_users_settings_counts_as_ended(
    make_session: MakeSession, tmux_socket: str
) -> None:
    make_session("other").start(["sleep", "60"])
    subprocess.run(["tmux", "-S", tmux_socket, "set-option", "-g", "remain-on-exit", "on"], check=True)
    session = make_session()
    session.start(["true"])
    assert session.wait(5) == 0
    session.start(["echo", "again"])
    assert session.wait(5) == 0
    session.stop()
    assert not session.exists()
    make_session("other").stop()


@pytest.mark.parametrize("quiet", [0.0, 10.0])
def test_waiting_has_a_deadline(make_session: MakeSession, quiet: float) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    start = time.monotonic()
    with pytest.raises(WaitTimeout, match="guest did not end within 0.2 s"):
        session.wait(0.2, quiet)
    assert time.monotonic() - start < 0.6
    session.stop()


def test_who_waits_hears_what_is_written_once_a_second_in_whole_lines(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", "printf 'one\\ntw'; sleep 1.5; echo o; sleep 1; echo three"])
    heard: list[str] = []
    assert session.wait(10, quiet=3.0, hear=heard.append) == 0
    assert heard[0] == "one\n" and "".join(heard) in ("one\ntwo\n", "one\ntwo\nthree\n") and len(heard) <= 3


def test_what_is_heard_or_not_heard_does_not_hide_an_end_by_somebody_else(make_session: MakeSession, tmux_socket: str) -> None:
    session = make_session()
    session.start(["sh", "-c", "echo working; exec sleep 60"])
    session.wait_for_output("working", 5)
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], check=True)
    heard: list[str] = []
    with pytest.raises(SessionError, match="guest is gone and left no exit code"):
        session.wait(30, quiet=30, hear=heard.append)
    assert heard == ["working\n"]


@pytest.mark.parametrize("how", [{}, {"hear": lambda text: None}])
def test_a_look_starts_no_process(
    make_session: MakeSession, monkeypatch: pytest.MonkeyPatch, how: dict[str, Callable[[str], None]]
) -> None:
    session = make_session()
    session.start(["sh", "-c", "echo working; sleep 1.5; echo working; exec sleep 60"])
    session.wait_for_output("working", 5)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a process for a look")

    monkeypatch.setattr(type(session._transport), "run", refused)
    monkeypatch.setattr("autotest.remote.multiplexer.LocalTmux._ask", refused)
    with pytest.raises(WaitTimeout):
        session.wait(3.5, quiet=10, **how)
    monkeypatch.undo()
    session.stop()


def test_waiting_for_output_tells_an_end_from_a_deadline(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", "echo why; exit 4"])
    with pytest.raises(SessionError, match="(?s)exit code 4 before.*why"):
        session.wait_for_output("ready", 5)
    session = make_session("second")
    session.start(["sh", "-c", "echo slow; exec sleep 60"])
    with pytest.raises(WaitTimeout, match="(?s)'ready'.*slow"):
        session.wait_for_output("ready", 0.3)
    session.stop()


def test_a_missing_program_ends_with_127_and_says_so(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["autotest-no-such"])
    assert session.wait(5) == 127
    assert "autotest-no-such" in session.output()


def test_a_session_runs_inside_the_namespace_of_its_machine(netns: str, tmux_socket: str, tmp_path: Path) -> None:
    session = Session(LocalTransport("inside", netns), tmux_socket, "s", str(tmp_path))
    session.start(["readlink", "/proc/self/ns/net"])
    session.wait(5)
    inside = subprocess.run(
        ["ip", "netns", "exec", netns, "readlink", "/proc/self/ns/net"], capture_output=True, text=True, check=False
    )
    assert session.output() == inside.stdout != os.readlink("/proc/self/ns/net") + "\n"


def test_a_machine_without_tmux_is_an_error_of_ours(tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AutotestError, match="tmux"):
        Session(LocalTransport("near"), tmux_socket, "s", str(tmp_path)).start(["true"])


# -- interrupted -------------------------------------------------------------------------------------------


def ends(marker: str) -> list[str]:
    """Which processes of that command line are there; they are ended, too: a test that fails leaves none behind."""
    found = subprocess.run(["pgrep", "-f", f"^sleep {marker}"], capture_output=True, text=True, check=False).stdout.split()
    for pid in found:
        os.kill(int(pid), signal.SIGKILL)
    return found


@pytest.fixture
def slow_tmux(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tmux takes a while before it makes a session, as the first one does on a machine that has a lot to do."""
    program = tmp_path / "bin" / "tmux"
    program.parent.mkdir()
    script = 'case " $* " in *" new-session "*) sleep 0.5;; esac; exec "$0" "$@"'
    program.write_text(f"#!/bin/sh\nexec sh -c '{script}' {shutil.which('tmux')} \"$@\"\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


class RunsOn(LocalTransport):
    """A machine that does not notice an interruption: the commands go on there."""

    is_local = False

    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        if "new-session" in command:
            subprocess.Popen(argv)
            time.sleep(0.1)
            raise KeyboardInterrupt
        return super()._execute(command, argv, data, timeout)


@pytest.mark.parametrize("transport", [LocalTransport("near"), RunsOn("far")], ids=["local", "remote"])
def test_a_session_whose_start_is_interrupted_does_not_appear_after_it_was_stopped(
    transport: Transport, tmux_socket: str, tmp_path: Path, slow_tmux: None
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    marker = f"7{time.time_ns()}"
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.2 if transport.is_local else 0)
            Session(transport, tmux_socket, "guest", str(tmp_path)).start(["sleep", marker])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    session = Session(transport, tmux_socket, "guest", str(tmp_path))  # as the undoing does, by what the journal says
    assert session.stop(hurry=True) is True
    time.sleep(0.7)
    assert not session.exists() and ends(marker) == []


# Asks for a session, is interrupted somewhere and undoes it; then says whether anything was there. Over and over.
_INTERRUPTED = """
import os, random, signal, sys, threading, time
import libtmux
from autotest.remote.local import LocalTransport
from autotest.remote.tmux import Session

folder, count, marker, to_group = sys.argv[1], int(sys.argv[2]), sys.argv[3], sys.argv[4] == "group"
signal.signal(signal.SIGINT, signal.default_int_handler)
send = (lambda: os.killpg(0, signal.SIGINT)) if to_group else (lambda: os.kill(os.getpid(), signal.SIGINT))
for number in range(count):
    place = os.path.join(folder, str(number))
    os.mkdir(place)
    make = lambda: Session(LocalTransport("near"), os.path.join(place, "tmux.sock"), "guest", place)
    try:
        threading.Timer(random.uniform(0, 0.04), send).start()
        make().start(["sleep", marker])
        time.sleep(10)
    except KeyboardInterrupt:
        pass
    make().stop(hurry=True)
"""


@pytest.mark.default
@pytest.mark.parametrize("to", ["process", "group"])
def test_interruptions_at_any_moment_leave_no_session(tmp_path: Path, to: str) -> None:
    count, marker = int(os.environ.get("INTERRUPTIONS", "5")), f"7{time.time_ns()}"
    command = [sys.executable, "-c", _INTERRUPTED, str(tmp_path), str(count), marker, to]
    try:
        subprocess.run(command, check=True, timeout=30 + count * 3, start_new_session=True)
        time.sleep(0.5)
        assert ends(marker) == []
    finally:
        for socket in tmp_path.glob("*/tmux.sock"):
            subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
        ends(marker)


# -- a tmux server that hangs ------------------------------------------------------------------------------


@contextmanager
def hanging(socket: str) -> Iterator[None]:
    shown = subprocess.run(["tmux", "-S", socket, "display-message", "-p", "#{pid}"], capture_output=True, check=True)
    os.kill(int(shown.stdout), signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(int(shown.stdout), signal.SIGCONT)


def test_the_command_ends_though_tmux_hangs_and_the_session_with_the_next_try(
    make_session: MakeSession, tmux_socket: str, tmp_path: Path
) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    pid = wait_for(session.pid, "the start", 5) or 0
    with hanging(tmux_socket):
        for _ in range(2):
            start = time.monotonic()
            with pytest.raises(SessionError, match="guest is ended, but its tmux session cannot be removed: tmux .* answer"):
                session.stop(hurry=True)
            assert time.monotonic() - start < 1.5  # 0.7 s and a busy machine
            assert not alive(pid) and (tmp_path / "guest.pid").exists()
    session.stop()
    assert not session.exists() and not list(tmp_path.glob("guest.*"))


def test_a_session_of_which_nothing_is_known_is_not_called_ended_while_tmux_hangs(
    make_session: MakeSession, tmux_socket: str, tmp_path: Path
) -> None:
    session = make_session()
    session.start(["sleep", "60"])
    pid = wait_for(session.pid, "the start", 5) or 0
    (tmp_path / "guest.pid").write_text("no number")
    with hanging(tmux_socket), pytest.raises(SessionError, match="^tmux has-session: the tmux server does not answer"):
        session.stop(hurry=True)
    assert session.stop() is True
    wait_for(lambda: not alive(pid), "the end", 5)
