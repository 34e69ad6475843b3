"""vMux: its command line for each kind, and its life, with programs that stand for it."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS, InterfaceKind, InterfaceOptions, vmux
from autotest.qemu.parts import Machine
from autotest.servers.guest import GuestSettings
from autotest.servers.host import Host
from autotest.servers.virtual_machine import VirtualMachine

NIC = "0000:51:00.0"
MAC = "52:54:00:fa:00:60"
OPTIONS = InterfaceOptions()
TAP = INTERFACE_KINDS["vmux-emu"]  # the kind whose links a namespace can have
ALL = [kind for name, kind in INTERFACE_KINDS.items() if name.startswith("vmux")]
LISTENS = 'server = socket.socket(socket.AF_UNIX)\nserver.bind(value("-s"))\nserver.listen()\nprint("listening", *sys.argv[1:])'
STAYS = f"{LISTENS}\ntime.sleep(60)"

ON_DPDK = f"-b {MAC} -d none -t none -m {{}} -u -- --lcores=0@(0-1) -n 1 --in-memory -a {NIC}"
COMMANDS = {
    "vmux-pt": f"-d {NIC} -t none -m passthrough",
    "vmux-emu": f"-b {MAC} -d none -t tap -m e1000-emu",
    "vmux-emu-e810": f"-b {MAC} -d none -t tap -m emulation",
    "vmux-med": ON_DPDK.format("mediation"),
    "vmux-dpdk": ON_DPDK.format("e1000-emu"),
    "vmux-dpdk-e810": ON_DPDK.format("emulation"),
    "vmux-vdpdk": ON_DPDK.format("vdpdk"),
}


class Started(Exception):
    """Instead of a process."""


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_command_line_of_each_kind(make_host: Callable[..., Host], monkeypatch: pytest.MonkeyPatch, kind: InterfaceKind) -> None:
    host = make_host(vmux_path="/opt/vmux", vmux_socket_path="/run/v.sock", test_iface_addr=NIC, test_iface_vfio_driv="vfio-pci")
    seen: list[str] = []

    def start(machine: VirtualMachine, session: Any, command: list[str], *rest: object) -> None:
        seen.extend(command)

    monkeypatch.setattr("autotest.interfaces.process.start", start)
    monkeypatch.setattr("autotest.interfaces.process.cpus_of", lambda host: "0-1")
    monkeypatch.setattr(type(host.hugepages), "require", lambda *_: None)
    monkeypatch.setattr(type(host.pci), "require", lambda *_: type("Device", (), {"numa_node": 0}))
    with host.journal.scope():
        if "test_tap" in kind.host_keys_of_guest:
            kind.set_up(host, True)
        kind.attach(host.machine(1), OPTIONS)
    ulimit = ["sh", "-c", 'ulimit -n 4096 && exec "$@"', "sh"]
    assert seen[: len(ulimit)] == ulimit
    assert " ".join(seen[len(ulimit) :]) == f"/opt/vmux -q -s /run/v.sock {COMMANDS[kind.name]}"


def test_each_kind_with_a_process_names_its_session_and_no_other_does() -> None:
    assert [name for name, kind in INTERFACE_KINDS.items() if bool(kind.session) != kind.has_process] == []


def test_every_kind_has_its_golden_line() -> None:
    assert {kind.name for kind in ALL} == set(COMMANDS)


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.name)
def test_qemu_is_the_build_with_vfio_user_and_gets_the_socket(make_host: Callable[..., Host], kind: InterfaceKind) -> None:
    host = make_host(vmux_qemu_path="/opt/vfio-user", qemu_path="/opt/qemu", vmux_socket_path="/run/v.sock")
    assert kind.nic
    part = kind.nic(host.config, host.testbed.guest, OPTIONS)
    assert part.render(Machine("pc")) == ["-device", "vfio-user-pci,socket=/run/v.sock,id=test"]
    program = GuestSettings("pcvm", kind, "").program
    assert program(host.config) == "/opt/vfio-user/qemu-system-x86_64"
    assert program(replace(host.config, vmux_qemu_path=None)) == "/opt/qemu/qemu-system-x86_64"
    assert kind.shared_memory and kind.machines == ("pcvm",)
    assert not (kind.vhost or kind.ioregionfd or kind.queues or kind.ring_sizes)


def run(host: Host) -> None:
    TAP.set_up(host, True)
    TAP.attach(host.machine(1), OPTIONS)


def link_names(host: Host) -> set[str]:
    shown = subprocess.run(["ip", "-n", str(host.config.netns), "-o", "link", "show"], check=True, capture_output=True, text=True)
    return {line.split()[1].rstrip(":").partition("@")[0] for line in shown.stdout.splitlines()}


def test_vmux_lives_as_long_as_its_scope_behind_the_socket_with_files_enough(
    make_host: Callable[..., Host], program: Callable[[str], str]
) -> None:
    host = make_host(vmux_path=program(STAYS))
    before, socket = link_names(host), Path(host.state_file("vmux.sock"))
    with host.journal.scope():
        run(host)
        session = host.session(TAP.session or "")
        pid = session.pid()
        assert socket.is_socket() and link_names(host) == {*before, "br", "tap"}
        limit = [line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if "open files" in line]
        assert limit[0].split()[3] == "4096"
        assert "-t tap -m e1000-emu\n" in session.output()
        TAP.check(host.machine(1))
    assert link_names(host) == before and not socket.exists() and not Path(f"/proc/{pid}").exists()


def test_a_socket_that_an_earlier_one_left_is_not_taken_for_ready(
    make_host: Callable[..., Host], program: Callable[[str], str], tmp_path: Path
) -> None:
    socket = tmp_path / "v.sock"
    os.mknod(socket, 0o140600)
    host = make_host(vmux_path=program(f"time.sleep(0.5)\n{STAYS}"), vmux_socket_path=str(socket))
    with host.journal.scope():
        run(host)
        assert "listening" in host.session("vmux").output()
    assert not socket.exists()


@pytest.mark.parametrize("make", [Path.touch, Path.mkdir, lambda path: path.symlink_to("/no")], ids=["file", "folder", "link"])
@pytest.mark.parametrize(("name", "key"), [("vmux-emu", "vmux_socket_path"), ("vhost-user", "vhost_user_socket_path")])
def test_what_is_no_socket_stays_where_the_socket_shall_be_and_is_named(
    make_host: Callable[..., Host], program: Callable[[str], str], tmp_path: Path, make: Callable[[Path], None], name: str,
    key: str,
) -> None:  # fmt: skip
    path, kind = tmp_path / "results", INTERFACE_KINDS[name]
    make(path)
    was = os.lstat(path)
    host = make_host(vmux_path=program(STAYS), testpmd_path=program(STAYS), **{key: str(path)})
    with pytest.raises(TestbedError, match=f"^host: {path} .* {key} "), host.journal.scope():
        kind.set_up(host, True)
        kind.attach(host.machine(1), OPTIONS)
    assert os.lstat(path).st_ino == was.st_ino and os.lstat(path).st_mode == was.st_mode
    assert kind.session and not host.session(kind.session).is_running()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('sys.exit("failed to initialize vfio consumer")', "vmux ended with exit code 1:\nfailed to initialize vfio consumer"),
        (f"{LISTENS}\nsys.stdout.flush()\nsignal.raise_signal(signal.SIGABRT)", "vmux ended with exit code 134:\nlistening"),
        ('print("probing")\ntime.sleep(60)', "vmux: to make its socket {socket}: not within 1 s:\nprobing"),
    ],
)
def test_a_vmux_that_does_not_get_ready_is_named_with_its_last_words_and_all_is_undone(
    make_host: Callable[..., Host], program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, lines: str, reason: str
) -> None:
    monkeypatch.setattr(vmux, "_START_TIMEOUT", 1.0)
    host = make_host(vmux_path=program(lines))
    before = link_names(host)
    socket = host.state_file("vmux.sock")
    with pytest.raises(TestbedError) as raised, host.journal.scope():
        run(host)
        host.session("vmux").wait(5)  # one that dies just after its socket was seen is found by the next look
        TAP.check(host.machine(1))
    assert str(raised.value).startswith(f"host: {reason.format(socket=socket)}")
    assert link_names(host) == before and not os.path.lexists(socket)
    assert not host.session("vmux").is_running() and host.journal.standing == ()


def test_a_vmux_that_dies_later_is_named(make_host: Callable[..., Host], program: Callable[[str], str]) -> None:
    host = make_host(vmux_path=program(STAYS))
    with host.journal.scope():
        run(host)
        host.run(["kill", "-KILL", str(host.session("vmux").pid())])
        host.session("vmux").wait(5)
        with pytest.raises(TestbedError, match="(?s)host: vmux ended with exit code 137:\nlistening"):
            TAP.check(host.machine(1))


def test_a_vmux_that_ignores_its_signal_is_ended_by_force(
    make_host: Callable[..., Host], program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vmux, "_GRACE", 0.3)
    host = make_host(vmux_path=program(f"signal.signal(signal.SIGINT, signal.SIG_IGN)\n{STAYS}"))
    with host.journal.scope():
        run(host)
        pid = host.session("vmux").pid()
    assert not Path(f"/proc/{pid}").exists() and not os.path.lexists(host.state_file("vmux.sock"))


def test_a_vmux_ends_in_order_on_sigint(make_host: Callable[..., Host], program: Callable[[str], str], tmp_path: Path) -> None:
    mark = tmp_path / "ended in order"
    handler = f"signal.signal(signal.SIGINT, lambda *_: (open({str(mark)!r}, 'w').close(), sys.exit()))"
    host = make_host(vmux_path=program(f"{handler}\n{STAYS}"))
    with host.journal.scope():
        run(host)
    assert mark.exists()
