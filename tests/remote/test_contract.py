"""What every transport promises, the same for this machine, a namespace of it, and a machine over SSH."""

from __future__ import annotations

import os
import socket
import stat
import threading
import time
from pathlib import Path

import pytest
from examples import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotest.errors import CommandError, CommandTimeout, ConnectError
from autotest.remote.following import FollowedFile
from autotest.remote.transport import Transport

HOSTILE = ["$(reboot)", "`x`", "a b", "'", '"', "\\", "a\nb", "-n", "--", "", "*", "~", "üñí🙂", ";", "&&", "#x"]
HOSTILE += ["a=b", "%s", "!1"]


def processes(marker: str) -> list[str]:
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and folder.name != str(os.getpid()):
            try:
                command = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if marker in command.split("\0"):
                found.append(folder.name)
    return found


def test_arguments_arrive_unchanged(transport: Transport) -> None:
    result = transport.run(["printf", "%s\\0", *HOSTILE])
    assert result.stdout.split("\0")[:-1] == HOSTILE


@settings(max_examples=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30), max_size=4),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30),
)
def test_any_arguments_and_environment_arrive_unchanged(transport: Transport, arguments: list[str], value: str) -> None:
    script = 'printf "%s\\0" "$AUTOTEST_X" "$@"'
    result = transport.run(["sh", "-c", script, "sh", *arguments], env={"AUTOTEST_X": value})
    assert result.stdout.split("\0")[:-1] == [value, *arguments]


def test_a_zero_byte_is_refused_before_anything_runs(transport: Transport) -> None:
    with pytest.raises(ValueError, match="zero byte"):
        transport.run(["echo", "a\0b"])


def test_the_environment_is_added_to_and_the_folder_is_changed(transport: Transport, tmp_path: Path) -> None:
    folder = tmp_path / "a 'b'"
    folder.mkdir()
    result = transport.run(["sh", "-c", 'pwd; echo "$X"; echo "${PATH:+path}"'], env={"X": "1 2"}, cwd=str(folder))
    assert result.stdout == f"{folder}\n1 2\npath\n"


def test_without_input_the_input_is_empty(transport: Transport) -> None:
    assert transport.run(["cat"]).stdout == ""


@pytest.mark.default
def test_megabytes_go_in_and_come_out_at_the_same_time(transport: Transport) -> None:
    data = ("0123456789abcde\n" * 65536) * 3
    result = transport.run(["sh", "-c", "tee /dev/stderr"], input=data)
    assert result.stdout == data and result.stderr == data


def test_a_command_that_does_not_read_its_input_ends(transport: Transport) -> None:
    assert transport.run(["true"], input="x" * 5_000_000).code == 0


def test_output_and_errors_stay_apart_and_broken_utf8_is_no_error(transport: Transport) -> None:
    result = transport.run(["sh", "-c", r"printf 'a\377b\r\n'; echo err >&2"])
    assert result.stdout == "a\ufffdb\r\n" and result.stderr == "err\n"


def test_an_exit_code_other_than_0_raises_with_machine_command_code_and_stderr(transport: Transport) -> None:
    with pytest.raises(CommandError) as caught:
        transport.run(["sh", "-c", "echo no such thing >&2; exit 42"])
    error = caught.value
    assert (error.machine, error.code, error.stderr) == (transport.name, 42, "no such thing\n")
    assert error.command[0] == "sh"
    assert transport.name in str(error) and "42" in str(error) and "no such thing" in str(error)


@pytest.mark.parametrize("code", [1, 124, 137, 255])
def test_an_exit_code_comes_back_when_the_caller_wants_it(transport: Transport, code: int) -> None:
    assert transport.run(["sh", "-c", f"exit {code}"], check=False).code == code


def test_the_end_by_a_signal_reads_the_same_everywhere(transport: Transport) -> None:
    assert transport.run(["sh", "-c", "kill -TERM $$"], check=False).code == 128 + 15


def test_a_missing_program_is_an_error_that_names_it_and_only_a_code_where_that_is_asked_for(
    transport: Transport,
) -> None:
    with pytest.raises(CommandError, match="autotest-no-such"):
        transport.run(["autotest-no-such", "x"])
    result = transport.run(["autotest-no-such", "x"], check=False)
    assert result.code != 0 and "autotest-no-such" in result.stderr


def test_a_time_limit_ends_the_command_and_its_children_there_too(transport: Transport) -> None:
    marker = f"9{time.time_ns()}"
    start = time.monotonic()
    with pytest.raises(CommandTimeout, match="within 0.3 s"):
        transport.run(["sh", "-c", f"sleep {marker} & sleep {marker}"], timeout=0.3)
    assert time.monotonic() - start < 3
    time.sleep(0.05)
    assert processes(marker) == []


@pytest.mark.default
def test_a_program_that_ignores_the_polite_signal_is_ended_all_the_same(transport: Transport) -> None:
    marker = f"8{time.time_ns()}"
    script = "trap '' TERM INT HUP; while :; do sleep 0.05; done"
    with pytest.raises(CommandTimeout):
        transport.run(["sh", "-c", script, marker], timeout=0.2)
    assert processes(marker) == []


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o666, 0o755])
def test_files_appear_with_the_mode_that_was_asked_for(transport: Transport, tmp_path: Path, mode: int) -> None:
    source = tmp_path / "source"
    source.write_text("x")
    transport.put(source, str(tmp_path / "put"), mode)
    transport.write(str(tmp_path / "written"), "x", mode)
    for name in ("put", "written"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == mode


def test_a_file_survives_the_way_there_and_back(transport: Transport, tmp_path: Path) -> None:
    content = os.urandom(3_000_000)
    (tmp_path / "source").write_bytes(content)
    transport.put(tmp_path / "source", str(tmp_path / "new folder/deep/there"))
    transport.get(str(tmp_path / "new folder/deep/there"), tmp_path / "other/back")
    assert (tmp_path / "other/back").read_bytes() == content


def test_text_is_read_as_it_was_written(transport: Transport, tmp_path: Path) -> None:
    content = "a\r\nb\rc\n\n ü🙂 "
    transport.write(str(tmp_path / "f"), content)
    assert (tmp_path / "f").read_bytes() == content.encode()
    assert transport.read(str(tmp_path / "f")) == content


def test_reading_a_file_that_is_not_there_gives_none(transport: Transport, tmp_path: Path) -> None:
    assert transport.read(str(tmp_path / "nothing")) is None
    assert transport.read(str(tmp_path / "nothing/deeper")) is None


def test_a_file_that_grows_is_read_on_from_where_it_was_left(transport: Transport, tmp_path: Path) -> None:
    file = FollowedFile(transport.outside, str(tmp_path / "log"))
    assert file.news() == ""
    with open(tmp_path / "log", "wb", buffering=0) as log:
        seen = []
        for part in ("first\nsec", "ond ü\n", "", "thi", "rd\nfourth\n"):
            log.write(part.encode())
            seen.append(file.news())
    assert seen == ["first\n", "second ü\n", "", "", "third\nfourth\n"]
    assert transport.outside.read_from(str(tmp_path / "log"), 6) == "second ü\nthird\nfourth\n".encode()
    assert transport.outside.read_from(str(tmp_path / "log"), 1000) == b""


def test_fetching_a_file_that_is_not_there_fails_and_leaves_the_target_as_it_was(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "target").write_text("old")
    with pytest.raises(FileNotFoundError):
        transport.get(str(tmp_path / "nothing"), tmp_path / "target")
    assert (tmp_path / "target").read_text() == "old"
    assert os.listdir(tmp_path) == ["target"]


def test_a_target_that_cannot_be_replaced_stays_and_no_temporary_file_is_left(transport: Transport, tmp_path: Path) -> None:
    (tmp_path / "folder/in").mkdir(parents=True)
    (tmp_path / "source").write_text("x")
    with pytest.raises(OSError):
        transport.put(tmp_path / "source", str(tmp_path / "folder"))
    with pytest.raises(OSError):
        transport.write(str(tmp_path / "folder"), "x")
    assert sorted(os.listdir(tmp_path)) == ["folder", "source"]


def test_a_reader_sees_the_old_or_the_new_file_but_never_a_part(transport: Transport, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("a" * 200_000)
    seen: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            content = target.read_text()
            seen.add(content[:1] + str(len(content)))

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        for letter in "bcdefg":
            transport.write(str(target), letter * 200_000)
    finally:
        done.set()
        watcher.join()
    assert seen <= {f"{letter}200000" for letter in "abcdefg"}


# -- the rest ----------------------------------------------------------------------------------------------


@pytest.mark.default
def test_a_unix_socket_there_can_be_talked_to(transport: Transport, tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()

        def echo() -> None:
            peer, _ = server.accept()
            with peer:
                while data := peer.recv(65536):
                    peer.sendall(data)

        echoing = threading.Thread(target=echo)
        echoing.start()
        with transport.connect_unix(path, 5.0) as connection:
            connection.sendall(b"x" * 300_000)
            received = b""
            while len(received) < 300_000:
                received += connection.recv(65536)
        echoing.join(5)
        assert not echoing.is_alive(), "the far end was not told that the connection is closed"
    assert received == b"x" * 300_000


@pytest.mark.default
def test_nobody_at_a_unix_socket_is_seen_at_once(transport: Transport, tmp_path: Path) -> None:
    start = time.monotonic()
    with pytest.raises(ConnectError):
        with transport.connect_unix(str(tmp_path / "nobody"), 5.0) as connection:
            if connection.recv(1) == b"":
                raise ConnectError("closed")  # over SSH the far end tells only by closing
    assert time.monotonic() - start < 2


def test_ping_gives_seconds(transport: Transport) -> None:
    assert 0 < transport.ping(5) < 5


def test_closing_twice_is_fine_and_the_next_command_opens_again(transport: Transport) -> None:
    transport.run(["true"])
    transport.close()
    transport.close()
    assert transport.run(["echo", "again"]).stdout == "again\n"


def test_commands_from_several_threads_do_not_mix(transport: Transport) -> None:
    transport.run(["true"])
    outputs: dict[int, str] = {}

    def work(number: int) -> None:
        outputs[number] = transport.run(["echo", str(number)]).stdout.strip()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outputs == {number: str(number) for number in range(5)}


@pytest.mark.default
def test_who_is_root_is_known(transport: Transport) -> None:
    assert transport.is_root is True
