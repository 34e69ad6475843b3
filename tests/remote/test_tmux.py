"""tmux sessions on a real tmux server with an own socket, through libtmux and through the tmux command."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from autotest.errors import AutotestError, WaitTimeout
from autotest.remote.local import LocalTransport
from autotest.remote.tmux import Session, SessionError
from autotest.remote.transport import Transport

MakeSession = Callable[..., Session]


@pytest.fixture(params=["local", "ssh"])
def make_session(request: pytest.FixtureRequest, tmux_socket: str, tmp_path: Path) -> MakeSession:
    """Makes sessions on one socket of a machine."""
    transport: Transport = LocalTransport("near")
    if request.param == "ssh":
        transport = request.getfixturevalue("shared_ssh")

    def make(name: str = "guest") -> Session:
        return Session(transport, tmux_socket, name, str(tmp_path))

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


def test_stop_sends_the_signal_and_the_program_can_say_good_bye(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", "trap 'echo bye; exit 7' INT; echo ready; while :; do sleep 0.02; done"])
    session.wait_for_output("ready", 5)
    session.stop(signal.SIGINT)
    assert session.output() == "ready\nbye\n" and session.exit_code() == 7
    assert not session.exists()


def test_a_program_that_ignores_the_signal_is_killed_after_its_grace(make_session: MakeSession) -> None:
    session = make_session()
    session.start(["sh", "-c", "trap '' INT TERM HUP; echo ready; while :; do sleep 0.02; done"])
    session.wait_for_output("ready", 5)
    pid = session.pid()
    assert pid
    start = time.monotonic()
    session.stop(signal.SIGINT, grace=0.2)
    assert 0.2 <= time.monotonic() - start < 2
    assert session.exit_code() == 137 and not alive(pid) and not session.exists()


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
    found = subprocess.run(["pgrep", "-f", f"^sleep {marker}"], capture_output=True, text=True).stdout.split()
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
        ["ip", "netns", "exec", netns, "readlink", "/proc/self/ns/net"], capture_output=True, text=True
    )
    assert session.output() == inside.stdout != os.readlink("/proc/self/ns/net") + "\n"


def test_a_machine_without_tmux_is_an_error_of_ours(
    tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AutotestError, match="tmux"):
        Session(LocalTransport("near"), tmux_socket, "s", str(tmp_path)).start(["true"])
