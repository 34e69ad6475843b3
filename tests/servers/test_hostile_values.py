"""Hostile names of files and programs, and answers that a machine should not give, at the servers."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

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
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from autotest.config.testbed import (
    GuestConfig,
    HostConfig,
    LoadGenConfig,
    ServerConfig,
    Testbed,
)
from autotest.errors import AutotestError, TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.preflight.machine import Files
from autotest.preflight.requirement import Status
from autotest.preflight.survey import Survey
from autotest.servers.guest import GuestSettings
from autotest.servers.host import Host
from autotest.servers.macvtap import _OPENER
from autotest.servers.server import Server, parse_sha256sums

FIXTURES = [HealthCheck.function_scoped_fixture]
NAMES = [name.replace("/", "-") for name in HOSTILE if 0 < len(name) < 100]


@pytest.fixture
def server(tmux_socket: str) -> Iterator[Server]:
    """A server on this machine with a state folder of its own."""
    server = Server("host", ServerConfig(fqdn="localhost", tmux_socket=f"{tmux_socket}-{os.getpid()}"))
    yield server
    shutil.rmtree(server.state_dir)


# -- files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["-", "--help", "sub", "/{0}/$(touch pwned)\n"])
def test_files_of_any_names_are_copied_once_and_again_when_they_differ(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    for folder in ("work", "elsewhere/sub", "source/-d $(touch pwned)"):
        (tmp_path / folder).mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("CDPATH", str(tmp_path / "elsewhere"))  # where cd would look first
    monkeypatch.setenv("OLDPWD", str(tmp_path / "source"))  # where cd - would go
    target = target.format(tmp_path / "work")
    source = tmp_path / "source"
    for name in NAMES:
        (source / name).write_text("")  # empty, as the standard input of sha256sum
        (source / "-d $(touch pwned)" / name).write_text(name.encode("utf-8", "replace").decode())
    assert server.upload(source, target) == 2 * len(set(NAMES))
    there = tmp_path / "work" / target
    assert os.listdir(tmp_path / "work") == [there.name] and os.listdir(tmp_path / "elsewhere/sub") == []
    # What is no UTF-8 comes back as another name, and so is copied again.
    odd = [name for name in set(NAMES) if as_read([name]) != [name]]
    assert server.upload(source, target) == 2 * len(odd)
    (there / "-").write_text("changed")
    (there / "a\nb").unlink()
    assert server.upload(source, target) == 2 * len(odd) + 2
    assert not list(tmp_path.glob("**/pwned"))


@settings(max_examples=examples(25), suppress_health_check=FIXTURES)
@given(st.lists(file_names, min_size=1, max_size=4, unique=True))
def test_what_sha256sum_prints_is_read_as_it_was_meant(tmp_path_factory: pytest.TempPathFactory, names: list[str]) -> None:
    folder = tmp_path_factory.mktemp("sums")
    for name in names:
        (folder / name).write_text(name.encode("utf-8", "replace").decode())
    command = ["sha256sum", "--", *(f"./{name}" for name in names)]
    printed = subprocess.run(command, cwd=folder, capture_output=True, check=True).stdout.decode(errors="replace")
    assert set(parse_sha256sums(printed)) == {f"./{name}" for name in as_read(names)}


@settings(max_examples=examples(100), suppress_health_check=FIXTURES)
@given(answers)
def test_what_is_no_listing_of_checksums_makes_no_file_count_as_copied(tmp_path: Path, answer: str) -> None:
    (tmp_path / "file").write_text("content")
    machine = FakeMachine(lambda command: answer)
    assert Server("host", ServerConfig(fqdn="far"), machine).upload(tmp_path, "/there") == 1
    assert machine.files == {"/there/file": "content"}


def test_a_file_name_cannot_pass_for_a_line_about_another_file() -> None:
    forged = "x\x0b" + "0" * 64 + "  ./file"
    assert parse_sha256sums(f"{'1' * 64}  ./{forged}\n") == {f"./{forged}": "1" * 64}


@settings(max_examples=examples(20), suppress_health_check=FIXTURES)
@given(file_names)
def test_undoing_removes_just_the_file_that_the_journal_names(
    server: Server, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    folder = tmp_path_factory.mktemp("undo")
    for each in (name, "other"):
        (folder / each).write_text("")
    with server.journal.scope():
        server.note("file", path=str(folder / name))
    assert os.listdir(folder) == (["other"] if name != "other" else [])


# -- programs ----------------------------------------------------------------------------------------------


@settings(max_examples=examples(40), suppress_health_check=FIXTURES)
@given(texts)
def test_a_program_that_is_missing_is_named_whatever_its_name(server: Server, name: str) -> None:
    missing = f"{name}/no such"
    with pytest.raises(TestbedError) as caught:
        server.require_programs(["sh", missing], "this test")
    shown = ", ".join(as_read([missing])[0].splitlines())
    assert str(caught.value) == str(TestbedError(f"host: this test needs {shown}: install it there"))


@pytest.mark.parametrize("name", ["-n", "-e", "\\c", "a\\nb", "--", "-v"])
def test_a_missing_program_is_missing_even_where_echo_would_not_show_it(server: Server, name: str) -> None:
    with pytest.raises(TestbedError) as caught:
        server.require_programs([name], "this test")
    assert f"needs {name}: install" in str(caught.value)


@settings(max_examples=examples(25), suppress_health_check=FIXTURES)
@given(st.lists(texts, max_size=4), file_names)
def test_the_opener_of_a_macvtap_hands_on_just_these_arguments(
    tmp_path_factory: pytest.TempPathFactory, given_: list[str], name: str
) -> None:
    folder = tmp_path_factory.mktemp("open")
    program = Path(recorder(folder)).rename(folder / "record it")
    (folder / name).write_text("")
    command = ["python3", "-I", "-c", _OPENER, str(folder / name), "9", "2", str(program), *given_]
    ended = subprocess.run(command, capture_output=True, check=True, cwd=folder)
    assert recorded(ended.stdout.decode(errors="replace")) == as_read(given_)
    assert sorted(os.listdir(folder)) == sorted({name, "record it"})


# -- what a machine answers --------------------------------------------------------------------------------


class Far(FakeMachine):
    """A far machine whose login is not root's."""

    is_root = False  # type: ignore[assignment]


@settings(max_examples=examples(150))
@given(answers, answers)
def test_a_folder_for_our_files_is_where_it_should_be_or_there_is_an_error_of_ours(home: str, boot: str) -> None:
    machine = Far(lambda command: home if "HOME" in command[-1] else "")
    machine.files["/proc/sys/kernel/random/boot_id"] = boot
    try:
        folder = Server("host", ServerConfig(fqdn="far"), machine).state_dir
    except AutotestError:
        return
    assert folder.startswith("/") and folder.startswith(f"{home.rstrip('/')}/.cache/autotest/run")


@pytest.mark.parametrize("socket", ["..", ".", "/", "/run/..", "held", "known", "/tmp/held"])
def test_no_socket_has_a_folder_that_is_not_its_own(socket: str) -> None:
    machine = FakeMachine()
    with pytest.raises(TestbedError, match="cannot be the name of a folder"):
        Server("host", ServerConfig(fqdn="far", tmux_socket=socket), machine).state_file("x")
    assert not machine.commands


def test_a_folder_that_was_open_to_others_is_closed(server: Server) -> None:
    os.chmod(server.state_dir, 0o777)
    again = Server("host", server.config)
    assert stat.S_IMODE(os.stat(again.state_dir).st_mode) == 0o700


def a_host(machine: FakeMachine) -> Host:
    config = HostConfig(fqdn="far", test_iface="nic", test_macvtap="mvt", root_disk_file="/d", accelerator="tcg", admin_tap="t")
    guest = GuestConfig(
        fqdn="g", kernel="/k", initrd="/i", test_iface_mac="52:54:00:fa:00:60", admin_iface_mac="52:54:00:fa:00:5f"
    )
    return Host(Testbed(Path("t"), config, guest, LoadGenConfig(fqdn="l")), machine)


def run_guest(host: Host) -> None:
    settings_ = GuestSettings("pcvm", INTERFACE_KINDS["macvtap"], "/q/qemu-system-x86_64")
    host.machine(1).start(settings_)


@settings(max_examples=examples(100))
@given(answers)
def test_without_a_clear_yes_a_file_counts_as_missing(answer: str) -> None:
    assume(answer.split() != ["there"] * 3)
    host = a_host(FakeMachine(lambda command: answer))
    files = Files("host", (("root_disk_file", "/d"), ("kernel", "/k"), ("initrd", "/i")), "the guest")
    servers: Any = SimpleNamespace(all=lambda: [host])
    assert files.look(Survey(servers)).status is Status.FAIL


@settings(max_examples=examples(100))
@given(answers, answers)
def test_the_rate_of_the_counter_is_a_number_or_there_is_an_error_of_ours(remembered: str, measured: str) -> None:
    def answer(command: Sequence[str]) -> str | int:
        return measured if command[0] == "python3" else 1 if command[0] == "ls" else ""

    machine = FakeMachine(answer)
    host = a_host(machine)
    memory = f"{host.memory_dir}/tsc-khz"
    machine.files[memory] = remembered
    with pytest.raises(AutotestError):  # at the latest there is no macvtap
        run_guest(host)
    assert machine.files[memory] == remembered or (machine.files[memory].strip().isascii() and int(machine.files[memory]) > 999)


@settings(max_examples=examples(100))
@given(answers, answers)
def test_no_answer_of_the_host_becomes_a_command(told: str, other: str) -> None:
    """Every program that is run is one of ours or of the configuration, however the host answers."""
    machine = FakeMachine(lambda command: told)
    machine.read = lambda source: other  # type: ignore[method-assign]
    host = a_host(machine)
    for use in (
        lambda: run_guest(host),
        host.kill_guest,
        host.guest_is_running,
        lambda: host.session("x").start(["true"]),
    ):
        with contextlib.suppress(AutotestError, NotImplementedError):
            use()
    programs = {command[0] for command in machine.commands}
    known = {"sh", "mkdir", "test", "python3", "ls", "cat", "stat", "rm", "mknod", "readlink", "tmux", "kill", "uname"}
    assert programs <= known | {"/q/qemu-system-x86_64"}
