"""Whatever a value holds, it arrives as exactly one argument, one path, one name: in a process, over SSH, in tmux."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import pytest
from examples import examples
from hostile import (
    HOSTILE,
    FakeMachine,
    answers,
    as_read,
    file_names,
    recorded,
    recorder,
    texts,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotest.errors import AutotestError, printable
from autotest.remote.local import LocalTransport
from autotest.remote.processes import Process, boot_id
from autotest.remote.ssh import SshTransport
from autotest.remote.tmux import Session, SessionError
from autotest.remote.transport import (
    Transport,
    command_line,
    full_command,
    socat_address,
    to_bytes,
)

FIXTURES = [HealthCheck.function_scoped_fixture]
values = st.lists(texts, max_size=5)


@pytest.fixture
def record(tmp_path: Path) -> str:
    return recorder(tmp_path)


@pytest.fixture
def hostile_folder(tmp_path: Path) -> Path:
    """A folder whose very name is hostile; the tests work in it, so that what a value starts would leave its file here."""
    folder = tmp_path / "-a 'b' $(touch pwned) \"c\";\n=d"
    folder.mkdir()
    return folder


# -- processes ---------------------------------------------------------------------------------------------


@settings(max_examples=examples(60), suppress_health_check=FIXTURES)
@given(values, texts)
def test_a_process_here_gets_just_these_arguments(record: str, hostile_folder: Path, given_: list[str], value: str) -> None:
    result = LocalTransport("near").run([record, value, *given_], cwd=str(hostile_folder), env={"X": value})
    assert recorded(result.stdout) == as_read([value, *given_])
    assert os.listdir(hostile_folder) == []


@pytest.mark.parametrize("name", ["a=b", "PATH=c", "sp ace", "$(touch pwned)", "--", "ü"])
def test_a_program_is_run_whatever_its_name(tmp_path: Path, hostile_folder: Path, name: str) -> None:
    program = Path(recorder(tmp_path)).rename(tmp_path / name)
    result = LocalTransport("near").run([str(program), "x"], cwd=str(hostile_folder), env={"A": "1"})
    assert recorded(result.stdout) == ["x"] and os.listdir(hostile_folder) == []


@pytest.mark.parametrize("name", ["", "-c", "--help"])
def test_an_option_is_not_a_program(name: str) -> None:
    with pytest.raises(AutotestError, match="not the name of a program"):
        full_command([name, "x"])


@pytest.mark.parametrize("name", ["", "-u", "A=B", "A B", "ü", "1"])
def test_the_name_of_a_variable_is_only_a_name(name: str) -> None:
    with pytest.raises(AutotestError, match="not the name of a variable"):
        full_command(["true"], env={name: "x"})


class Sent(Exception):
    """What would have gone over the wire."""


class RecordedChannel:
    def __enter__(self) -> RecordedChannel:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def close(self) -> None:
        pass

    def exec_command(self, command: bytes) -> NoReturn:
        raise Sent(command)


def what_is_sent(monkeypatch: pytest.MonkeyPatch, command: list[str], **options: object) -> bytes:
    """The very text that a command over SSH hands to the shell of the login there."""
    transport = SshTransport("far", "server")
    monkeypatch.setattr(transport, "_open_channel", RecordedChannel)
    monkeypatch.setattr(transport, "_is_root", False)
    with pytest.raises(Sent) as caught:
        transport.run(command, **options)  # type: ignore[arg-type]
    sent = caught.value.args[0]
    assert isinstance(sent, bytes)
    return sent


@pytest.fixture
def sudo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in that takes the options that sudo is called with, and no others."""
    program = tmp_path / "bin/sudo"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\n[ "$1 $2" = "-n --" ] || exit 99\nshift 2\nexec "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("shell", ["sh", "bash"])
@settings(max_examples=examples(30), suppress_health_check=FIXTURES)
@given(values, texts)
def test_the_shell_of_a_login_makes_these_arguments_of_what_is_sent(
    record: str,
    hostile_folder: Path,
    sudo: None,
    monkeypatch: pytest.MonkeyPatch,
    shell: str,
    given_: list[str],
    value: str,
) -> None:
    options = {"cwd": str(hostile_folder), "env": {"X": value}, "sudo": True}
    sent = what_is_sent(monkeypatch, [record, value, *given_], **options)
    ended = subprocess.run([shell, "-c", sent], capture_output=True, cwd=hostile_folder, check=True)
    assert recorded(ended.stdout.decode(errors="replace")) == as_read([value, *given_])
    assert os.listdir(hostile_folder) == []


@settings(max_examples=examples(200))
@given(values)
def test_no_word_is_left_to_a_shell_of_another_kind(given_: list[str]) -> None:
    for word, quoted in zip(given_, map(command_line, ([word] for word in given_)), strict=True):
        plain = word and not set(word) - set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789@%+=:,./-_")
        assert (quoted == word) == bool(plain and not word.startswith("="))  # zsh knows =ls, all know what is no letter


@settings(max_examples=examples(8), suppress_health_check=FIXTURES)
@given(values, texts)
def test_a_machine_over_ssh_gets_just_these_arguments(
    shared_ssh: SshTransport, record: str, hostile_folder: Path, given_: list[str], value: str
) -> None:
    result = shared_ssh.run([record, value, *given_], cwd=str(hostile_folder), env={"X": value})
    assert recorded(result.stdout) == as_read([value, *given_])
    assert os.listdir(hostile_folder) == []


def test_all_hostile_values_reach_a_machine_over_ssh_at_once(shared_ssh: SshTransport, record: str) -> None:
    assert recorded(shared_ssh.run([record, *HOSTILE]).stdout) == as_read(HOSTILE)


# -- zero bytes and half characters ------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["a\0b", "\0", "\ud800"])
def test_what_no_program_can_be_given_is_refused_before_anything_is_done(transport: Transport, tmp_path: Path, text: str) -> None:
    (tmp_path / "source").write_text("x")
    path = f"{tmp_path}/{text}"
    for refused in (
        lambda: transport.run(["touch", str(tmp_path / "ran"), text]),
        lambda: transport.run(["touch", str(tmp_path / "ran")], env={"X": text}),
        lambda: transport.run(["touch", str(tmp_path / "ran")], cwd=path),
        lambda: transport.put(tmp_path / "source", path),
        lambda: transport.write(path, "x"),
        lambda: transport.read(path),
        lambda: transport.get(path, tmp_path / "got"),
        lambda: transport.connect_unix(path, 1).__enter__(),
    ):
        with pytest.raises(AutotestError, match="zero byte|cannot be written as UTF-8"):
            refused()
    assert os.listdir(tmp_path) == ["source"]


# -- files and sockets -------------------------------------------------------------------------------------


@settings(max_examples=examples(12), suppress_health_check=FIXTURES)
@given(file_names, file_names)
def test_a_file_has_just_this_name(
    transport: Transport, tmp_path_factory: pytest.TempPathFactory, folder: str, name: str
) -> None:
    place = tmp_path_factory.mktemp("files")
    path = place / folder / name
    transport.write(str(path), "content")
    assert os.listdir(place) == [folder] and os.listdir(place / folder) == [name] and path.read_text() == "content"
    assert transport.read(str(path)) == "content"
    transport.put(path, f"{path}2")
    transport.get(f"{path}2", place / "back")
    assert (place / "back").read_text() == "content"


SOCKETS = [
    "a!!EXEC:touch pwned",
    "a,b",
    "a:b",
    "-",
    "'q'",
    "{x}",
    "\\",
    "sp ace",
    "a\nb",
    "ü🙂",
    "$(touch pwned)",
    "!!",
]


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.settimeout(5)
        yield server


def say_hello(server: socket.socket, path: Path) -> threading.Thread:
    server.bind(to_bytes(str(path)))
    server.listen()

    def hello() -> None:
        peer, _ = server.accept()
        with peer:
            peer.sendall(b"hello")

    thread = threading.Thread(target=hello)
    thread.start()
    return thread


@pytest.mark.default
@pytest.mark.parametrize("name", SOCKETS)
def test_to_socat_the_path_of_a_socket_is_only_a_path(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    thread = say_hello(listener, tmp_path / name)
    command = ["socat", "-", socat_address("UNIX-CONNECT", str(tmp_path / name))]
    ended = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=5, check=False)
    thread.join()
    assert ended.stdout == b"hello", ended.stderr
    assert os.listdir(tmp_path) == [name]


@pytest.mark.default
def test_a_socket_is_talked_to_whatever_its_name(transport: Transport, tmp_path: Path, listener: socket.socket) -> None:
    thread = say_hello(listener, tmp_path / SOCKETS[0])
    with transport.connect_unix(str(tmp_path / SOCKETS[0]), 5) as connection:
        assert connection.recv(100) == b"hello"
    thread.join()


# -- tmux --------------------------------------------------------------------------------------------------


def make_session(request: pytest.FixtureRequest, tmux_socket: str, tmp_path: Path, name: str = "s") -> Session:
    way = request.getfixturevalue("shared_ssh") if request.node.callspec.params["way"] == "ssh" else LocalTransport("near")
    return Session(way, tmux_socket, name, str(tmp_path))


@pytest.mark.parametrize("way", ["local", "ssh"])
def test_a_session_gets_just_these_arguments_whatever_shell_its_user_has(
    request: pytest.FixtureRequest, tmux_socket: str, tmp_path: Path, record: str, way: str
) -> None:
    make_session(request, tmux_socket, tmp_path, "first").start(["sleep", "60"])
    subprocess.run(["tmux", "-S", tmux_socket, "set-option", "-g", "default-shell", "/bin/false"], check=True)
    session = make_session(request, tmux_socket, tmp_path)
    for given_ in (HOSTILE, ["last;"], ["last\\;"], [";"]):
        session.start([record, *given_])
        assert session.wait(10) == 0
        assert recorded(session.output()) == as_read(given_)
    make_session(request, tmux_socket, tmp_path, "first").stop()
    assert not [name for name in os.listdir(tmp_path) if "pwned" in name]


@pytest.mark.parametrize("way", ["local"])
@settings(max_examples=examples(8), suppress_health_check=FIXTURES)
@given(given_=values)
def test_a_session_gets_any_arguments(
    request: pytest.FixtureRequest, tmux_socket: str, tmp_path: Path, record: str, way: str, given_: list[str]
) -> None:
    session = make_session(request, tmux_socket, tmp_path)
    session.start([record, "first", *given_])
    assert session.wait(10) == 0
    assert recorded(session.output()) == as_read(["first", *given_])


@settings(max_examples=examples(200))
@given(st.one_of(texts, st.sampled_from(["../x", "/x", "a.b", "a:b", "a/b", "#(x)", "-x", "x" * 101, "a\n"])))
def test_a_name_that_tmux_or_a_path_would_take_for_more_is_refused(name: str) -> None:
    try:
        session = Session(FakeMachine(), "socket", name, "/folder")
    except SessionError as error:
        assert "cannot be the name of a tmux session" in str(error)
        return
    assert session.log_file == f"/folder/{name}.log"
    assert not set(name) & set("#:.$%@=/; \n'\"") and not name.startswith("-")


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("_START_TIMEOUT", "_WRAPPER_TIMEOUT", "_KILL_TIMEOUT"):
        monkeypatch.setattr(f"autotest.remote.tmux.{limit}", 0.0)


def session_with(machine: FakeMachine, **files: str | None) -> Session:
    """A session that was started, by what is in its files; all processes that they could mean are there."""
    written = {f"/folder/s.{suffix}": content for suffix, content in files.items()}
    written |= {f"/proc/{pid}/stat": f"{pid} (x) S" + " 1" * 30 for pid in (0, 1, 2, 7, 4194305)}
    machine.files = {path: content for path, content in written.items() if content is not None}
    return Session(machine, "socket", "s", "/folder", grace=0.0)


def signalled(machine: FakeMachine) -> set[str]:
    return {command[2] for command in machine.commands if command[0] == "kill"}


@pytest.mark.parametrize("content", ["1 1", "0 1", "-1 1", "1.5 1", "2.5 1", "4194305 1", "7", "7 1 1", "seven 1", "٧ 1"])
def test_a_file_that_names_no_process_of_ours_lets_none_be_signalled(impatient: None, content: str) -> None:
    machine = FakeMachine()
    session = session_with(machine, pid=content)
    for look in (session.pid, session.state):
        with pytest.raises(SessionError, match="s.pid is damaged"):
            look()
    with suppress(SessionError):
        session.stop()  # by its tmux session alone
    assert not signalled(machine)


def test_the_process_of_a_session_is_signalled_and_no_other(impatient: None) -> None:
    machine = FakeMachine()
    with pytest.raises(SessionError, match="process 7 of s cannot be ended"):
        session_with(machine, pid="7 1\n").stop()
    assert signalled(machine) == {"7"}


@settings(max_examples=examples(400), suppress_health_check=FIXTURES)
@given(st.one_of(st.none(), answers), st.one_of(st.none(), answers))
def test_a_damaged_file_of_a_session_is_an_error_of_ours_and_no_signal_goes_astray(
    impatient: None, pid: str | None, code: str | None
) -> None:
    machine = FakeMachine()
    session = session_with(machine, pid=pid, exit=code)
    for look in (session.exit_code, session.pid, session.state, session.duration, session.clock_jump, session.stop):
        with suppress(AutotestError):
            look()
    assert all(int(pid) > 1 for pid in signalled(machine))


@settings(max_examples=examples(300))
@given(answers)
def test_what_proc_cannot_say_is_an_error_of_ours(answer: str) -> None:
    machine = FakeMachine()
    machine.files = {"/proc/7/stat": answer, "/proc/sys/kernel/random/boot_id": answer}
    for look in (lambda: Process(7, 1).state(machine), lambda: boot_id(machine)):
        try:
            found = look()
        except AutotestError:
            continue
        assert found is None or "/" not in found  # the boot id becomes part of a path


# -- what is shown -----------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(st.one_of(texts, answers))
def test_no_message_gives_orders_to_the_terminal(text: str) -> None:
    for shown in (str(AutotestError(text)), printable(text)):
        assert all(char.isprintable() or char in "\n\t" for char in shown)
        assert shown == text or not text.replace("\n", "").replace("\t", "").isprintable()


def test_colours_are_left_out_of_a_message_and_other_control_characters_shown() -> None:
    assert printable("\x1b[31mred\x1b[0m \x1b]0;title\x07 a\r\nb\tc ü\u202e\x9b") == (
        "red \\x1b]0;title\\x07 a\nb\tc ü\\u202e\\x9b"
    )


# -- a tmux server that ends -------------------------------------------------------------------------------


@pytest.mark.parametrize("made", [False, True])
def test_a_session_is_started_once_though_the_tmux_server_was_just_ending(made: bool) -> None:
    machine = FakeMachine()

    def answer(command: Sequence[str]) -> str | int:
        if "new-session" in command and sum("new-session" in each for each in machine.commands) == 1:
            if made:  # the command ran and ended, and with it the server, before tmux could say so
                machine.files["/folder/s.exit"] = "0 1.0 1.0 1.0 1.0"
            raise SessionError("tmux session s: server exited unexpectedly")
        return 1 if "has-session" in command else ""

    machine._answer = answer
    Session(machine, "socket", "s", "/folder").start(["true"])
    assert sum("new-session" in command for command in machine.commands) == (1 if made else 2)


def test_any_other_refusal_of_tmux_is_not_tried_again() -> None:
    def answer(command: Sequence[str]) -> str | int:
        if "new-session" in command:
            raise SessionError("tmux session s: command too long")
        return 1 if "has-session" in command else ""

    machine = FakeMachine(answer)
    with pytest.raises(SessionError, match="too long"):
        Session(machine, "socket", "s", "/folder").start(["true"])
    assert sum("new-session" in command for command in machine.commands) == 1
