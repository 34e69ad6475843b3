"""To QEMU a value is only a value, by QEMU's own rules for reading options; and what it answers may be anything."""

from __future__ import annotations

import dataclasses
import json
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from examples import examples
from hostile import HOSTILE, FakeMachine, answers, json_values, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.errors import QemuError
from autotest.interfaces import INTERFACE_KINDS
from autotest.qemu import qmp
from autotest.qemu.accelerator import choose
from autotest.qemu.console import panic
from autotest.qemu.parts import GdbServer, Machine, SharedFolder
from autotest.remote.local import LocalTransport
from autotest.remote.wait import wait_for
from autotest.servers.guest import GuestSettings, qemu_command_line

filled = texts.filter(bool)


def options(text: str) -> list[tuple[str, str]]:
    """How QEMU takes an option apart: a name to the first ``=``, a value to the first comma that is not doubled.

    util/qemu-option.c, get_opt_value and get_opt_name_value; util/keyval.c has the same rule.
    """
    found = []
    while text:
        name, equals, _ = text.partition("=")
        if not equals or "," in name:  # the head, like tap or socket
            name, _, text = text.partition(",")
            found.append(("", name))
            continue
        text = text[len(name) + 1 :]
        value = ""
        while text:
            if text[0] == ",":
                if text[1:2] != ",":
                    break
                text = text[1:]
            value, text = value + text[0], text[1:]
        text = text[1:]
        found.append((name, value))
    return found


def test_the_rule_itself() -> None:
    assert options("tap,id=a,,b=c,x=,y=,,") == [("", "tap"), ("id", "a,b=c"), ("x", ""), ("y", ",")]


def command(host: HostConfig, guest: GuestConfig, interface: str = "bridge", **places: str) -> list[str]:
    return qemu_command_line(
        host, guest, GuestSettings("pcvm", INTERFACE_KINDS[interface], ""), program="qemu", accelerator="tcg", tsc_khz=None,
        qmp_socket=places.get("qmp", "/q"), gdb_socket=places.get("gdb", "/g"),
    ).render()  # fmt: skip


@settings(max_examples=examples(150))
@given(filled, filled, filled, filled, filled, filled)
def test_each_value_of_the_configuration_is_read_back_as_it_was(
    disk: str, link: str, mac: str, kernel: str, tag: str, place: str
) -> None:
    host = HostConfig(fqdn="h", admin_tap=link, test_tap=link, root_disk_file=disk, fsdevs=((tag, place),))
    guest = GuestConfig(
        fqdn="g",
        admin_iface_mac=mac,
        test_iface_mac=mac,
        kernel=kernel,
        initrd=kernel,
        kernel_args=kernel,
        cpu_model="max",
    )
    arguments = command(host, guest, qmp=place, gdb=place)
    plain = command(
        dataclasses.replace(host, admin_tap="t", test_tap="t", root_disk_file="/d", fsdevs=(("t", "/p"),)),
        dataclasses.replace(guest, admin_iface_mac="m", test_iface_mac="m", kernel="k", initrd="k", kernel_args="k"),
    )
    assert len(arguments) == len(plain)
    expected = {"/d": disk if disk.startswith("/") else f"./{disk}", "/p": place, "/q": place, "/g": place}
    for given_, ours in zip(arguments, plain, strict=True):
        if ours == "k":
            assert given_ == kernel  # an argument of its own
            continue
        for (name, value), (our_name, our_value) in zip(options(given_), options(ours), strict=True):
            assert name == our_name
            if our_value in expected:
                assert value == expected[our_value]
            elif (name, our_value) in (("ifname", "t"), ("mac", "m"), ("mount_tag", "t")):
                assert value == {"ifname": link, "mac": mac, "mount_tag": tag}[name]
            elif our_value != "fs-t":  # an identifier of QEMU's own, see below
                assert value == our_value


@settings(max_examples=examples(100))
@given(filled, filled)
def test_a_shared_folder_has_an_identifier_that_qemu_takes_and_no_other_has(tag: str, other: str) -> None:
    def identifier(tag: str) -> str:
        made = dict(options(SharedFolder(tag, "/x").render(Machine("pc"))[1]))["id"]
        assert (
            made[0].isascii() and made[0].isalpha() and all(char.isascii() and (char.isalnum() or char in "-._") for char in made)
        )
        return made

    assert (identifier(tag) == identifier(other)) == (tag == other)


@pytest.mark.default
def test_a_real_qemu_reads_hostile_paths_as_they_are(tmp_path: Path) -> None:
    names = [name for name in HOSTILE if 0 < len(name) < 20 and name.isprintable() and "/" not in name]
    arguments = []
    for number, name in enumerate(names):
        folder = tmp_path / str(number)
        folder.mkdir()
        rendered = GdbServer(str(folder / name)).render(Machine("pc"))[1]
        arguments.append(rendered.replace("id=gdb", f"id=c{number}", 1))
    control = str(tmp_path / "qmp")
    chardevs = [word for argument in arguments for word in ("-chardev", argument)]
    line = ["qemu-system-x86_64", "-machine", "none", "-display", "none", "-nodefaults", *chardevs]
    with subprocess.Popen([*line, "-qmp", f"unix:{control},server=on,wait=off"], stdin=subprocess.DEVNULL) as process:
        try:
            here = LocalTransport("host")
            wait_for(lambda: qmp.is_listening(here, control), "QEMU", 10, 0.02)
            with qmp.connect(here, control) as asked:
                shown = {each["label"]: each["filename"] for each in asked.command("query-chardev")}
            made = [[path.name for path in (tmp_path / str(number)).iterdir()] for number in range(len(names))]
        finally:
            process.kill()
    for number, name in enumerate(names):
        assert shown[f"c{number}"].removeprefix("disconnected:unix:").startswith(f"{tmp_path}/{number}/{name}"), name
        assert made[number] == [name]


# -- what QEMU and its machine answer ----------------------------------------------------------------------

GREETING = b'{"QMP": {"version": {"qemu": {"micro": 0, "minor": 0, "major": 7}, "package": ""}, "capabilities": []}}\n'
DONE = b'{"return": {}}\n'


class Answering(FakeMachine):
    """A machine on which somebody answers to QMP: the greeting first, then one text for each command."""

    def __init__(self, greeting: bytes, *replies: bytes) -> None:
        super().__init__()
        self._talk = (greeting, *replies)

    @contextmanager
    def connect_unix(self, path: str, timeout: float) -> Iterator[socket.socket]:
        ours, theirs = socket.socketpair()

        def talk() -> None:
            greeting, *replies = self._talk
            with theirs:
                try:
                    theirs.sendall(greeting)
                    for reply in replies:
                        asked = json.loads(theirs.recv(65536) or b"{}")
                        theirs.sendall(reply.replace(b"ID", json.dumps(asked.get("id")).encode()))
                except (OSError, ValueError):
                    pass

        thread = threading.Thread(target=talk)
        thread.start()
        with ours:
            yield ours
        thread.join()


def ask(greeting: bytes, *replies: bytes) -> str:
    with qmp.connect(Answering(greeting, *replies), "/socket") as control:
        return control.status()


def test_a_right_answer_is_understood() -> None:
    assert ask(GREETING, DONE, b'{"return": {"status": "paused"}, "id": ID}\n') == "paused"


@pytest.mark.parametrize(
    "answer",
    [b"null", b"5", b"[]", b'"x"', b"{}", b"[" * 100_000, b"\xff\xfe", b"\xff\xff", b"9" * 5000, b"NaN", b"x" * (11 << 20),
     b'{"QMP": null}', b'{"QMP": {"capabilities": 5}}', b'{"event": 5}', b'{"error": 2, "id": ID}', b'{"error": {}, "id": ID}',
     b'{"return": 1, "error": {"class": 5, "desc": []}, "id": ID}', b'{"return": {"status": 5}, "id": ID}',
     b'{"return": {}, "id": ["x"]}', b'{"return": {}, "id": {"a": 1}}', b'{"return": null, "id": ID}', b'{"return": {}, "id": ID}',
     b'{"return": ' + b"9" * 5000 + b', "id": ID}'],
    ids=lambda answer: answer[:40].decode(errors="replace"),
)  # fmt: skip
def test_what_is_no_answer_of_qemu_is_an_error_of_ours(monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    monkeypatch.setattr(qmp, "_TIMEOUT", 0.3)
    for talk in ((answer + b"\n",), (GREETING, answer + b"\n"), (GREETING, DONE, answer + b"\n")):
        with pytest.raises(QemuError):
            ask(*talk)
        assert not qmp.is_listening(Answering(*talk), "/socket")


@settings(max_examples=examples(60))
@given(json_values.map(json.dumps).map(str.encode))
def test_any_json_is_a_status_or_an_error_of_ours(answer: bytes) -> None:
    with suppress(QemuError):
        assert isinstance(ask(GREETING, DONE, b'{"return": ' + answer + b', "id": ID}\n'), str)


@settings(max_examples=examples(100))
@given(answers, st.booleans())
def test_whatever_is_remembered_of_kvm_the_accelerator_is_one_that_there_is(answer: str, runs: bool) -> None:
    machine = FakeMachine(lambda command: answer if command[0] != "test" else 0 if runs else 1)
    machine.read = lambda source: answer  # type: ignore[method-assign]
    assert choose("auto", machine, "qemu", None, "/memory") in ("kvm", "tcg")


@settings(max_examples=examples(100))
@given(answers)
def test_a_console_may_say_anything(console: str) -> None:
    assert panic(console) is None
    assert panic(f"{console}\nKernel panic - not syncing: {console}") is not None
