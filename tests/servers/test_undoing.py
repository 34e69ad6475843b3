"""What a run left is undone by a later process to exactly what was there before, also when that was unusual.

Real links, sessions and QEMU in a namespace; the run's journal is the only thing that the later process knows.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import FakeKernel, FakeMachine

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.network.pci import PciDevices
from autotest.remote.tmux import SessionError
from autotest.run import interruption
from autotest.run.journal import Journal, Left, UndoFailed, read_journal
from autotest.run.recovery import journal_folder, journaled_servers, undo_left
from autotest.servers import server
from autotest.servers.guest import GuestSettings
from autotest.servers.hugepages import Hugepages
from autotest.servers.testbed import Servers

Work = Callable[[Servers], object]
# What counts by itself, what follows from the carrier in the kernel's own time, and what the kernel gives a link for good
# when it is first brought up or gets its first port.
_KERNELS_OWN = re.compile(r".*_timer|.*_life_time|operstate|tentative|qdisc|tso_max_size")
_OF_THE_CARRIER = ("NO-CARRIER", "LOWER_UP")


def ip(netns: str, *arguments: str) -> str:
    return subprocess.run(["ip", "-n", netns, *arguments], check=True, capture_output=True, text=True).stdout


def state(netns: str) -> dict[str, Any]:
    """All that the kernel tells of the namespace's links, and the neighbours that somebody entered."""
    links = json.loads(ip(netns, "-json", "-details", "address", "show"))
    neighbours = json.loads(ip(netns, "-json", "neighbour", "show", "nud", "permanent"))
    return {link["ifname"]: _lasting(link) for link in links} | {"neighbours": neighbours}


def settled_state(netns: str) -> dict[str, Any]:
    """The state once a NIC that is up has its carrier, and with it its own address."""
    deadline = time.monotonic() + 5
    while any(
        "UP" in link["flags"] and link["operstate"] != "UP"
        for link in json.loads(ip(netns, "-json", "link", "show"))
        if link["ifname"] in ("nic", "other")
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return state(netns)


def require_state(netns: str, wanted: dict[str, Any]) -> None:
    deadline = time.monotonic() + 3
    while state(netns) != wanted and time.monotonic() < deadline:
        time.sleep(0.05)
    assert state(netns) == wanted


def _lasting(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _lasting(each) for key, each in value.items() if not _KERNELS_OWN.fullmatch(key)}
    return [_lasting(each) for each in value if each not in _OF_THE_CARRIER] if isinstance(value, list) else value


def add_nic(netns: str) -> None:
    # The kernel would tell of its tries whether an IPv6 address is free, which take a second or two.
    subprocess.run(["ip", "netns", "exec", netns, "sysctl", "-qw", "net.ipv6.conf.default.accept_dad=0"], check=True)
    ip(netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer")
    # The wire's other end would get an address with its first carrier.
    ip(netns, "link", "set", "dev", "peer", "addrgenmode", "none", "up")


@pytest.fixture
def testbed(netns: str, tmux_socket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Testbed]:
    """A host in a namespace with a NIC, ``nic``, that is down; its other end is up."""
    add_nic(netns)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    socket = f"{tmux_socket}-{os.getpid()}"
    host = HostConfig(
        fqdn="localhost", netns=netns, tmux_socket=socket, test_iface="nic", test_bridge="br", test_tap="tap",
        test_macvtap="mvt", test_iface_mac="52:54:00:aa:00:01", admin_bridge="adm", admin_tap="admtap",
        admin_bridge_ip_net="10.9.0.1/24", accelerator="tcg", root_disk_snapshot=True,
    )  # fmt: skip
    guest = GuestConfig(
        fqdn="10.9.0.2", netns=netns, vcpus=1, memory=32, admin_iface_mac="52:54:00:fa:00:5f", test_iface_mac="52:54:00:fa:00:60"
    )
    loadgen = LoadGenConfig(fqdn="localhost", netns=netns, tmux_socket=socket)
    yield Testbed(tmp_path / "c", host, guest, loadgen)
    subprocess.run(["tmux", "-S", socket, "kill-server"], check=False, capture_output=True)
    shutil.rmtree(Path("/run/autotest", os.path.basename(socket)), ignore_errors=True)


def left_by(testbed: Testbed, work: Work) -> Left:
    """The journal of a run that did the work and undid nothing of it."""
    with journaled_servers(testbed) as servers:
        work(servers)
    (path,) = journal_folder(testbed).glob("*.journal")
    return read_journal(path)


def undone(testbed: Testbed, left: Left) -> list[str]:
    """Undo it twice, the second time as if the first had been cut short before it wrote anything down."""
    content = left.path.read_bytes()
    done = undo_left(testbed, left)
    assert not left.path.exists()
    before = settled_state(str(testbed.host.netns))
    left.path.parent.mkdir(parents=True, exist_ok=True)
    left.path.write_bytes(content)
    assert undo_left(testbed, read_journal(left.path)) == []
    assert not left.path.exists()
    require_state(str(testbed.host.netns), before)
    return done


def set_up(kind: str) -> Work:
    return lambda servers: servers.host.networks_up(GuestSettings("pcvm", INTERFACE_KINDS[kind], ""))


@pytest.fixture
def program(tmp_path: Path) -> str:
    """An XDP program's object file."""
    path = tmp_path / "pass.o"
    text = '__attribute__((section("xdp"), used)) int pass(void *frame) { return 2; }\n'
    command = ["clang", "-target", "bpf", "-O2", "-x", "c", "-", "-c", "-o", str(path)]
    subprocess.run(command, input=text, text=True, check=True)
    return str(path)


# -- each kind of change -----------------------------------------------------------------------------------


def add_tap(servers: Servers) -> None:
    servers.host.links.add_bridge("br")
    servers.host.links.add_tap("tap", "br")


def add_neighbour(servers: Servers) -> None:
    servers.host.links.up("nic")
    servers.host.links.note_neighbour("nic", "10.9.0.2", "52:54:00:fa:00:5f")
    servers.host.links.set_neighbour("nic", "10.9.0.2", "52:54:00:fa:00:5f")


CHANGES: dict[str, tuple[Work, list[str]]] = {
    "bridge": (lambda servers: servers.host.links.add_bridge("br"), ["host: link br: deleted"]),
    "tap": (add_tap, ["host: link tap: deleted", "host: link br: deleted"]),
    "macvtap": (
        lambda servers: servers.host.links.add_macvtap("mvt", "nic", "52:54:00:fa:00:60"),
        ["host: link mvt: deleted", "host: up nic: taken down again"],
    ),
    "up": (lambda servers: servers.host.links.up("nic"), ["host: up nic: taken down again"]),
    "address": (
        lambda servers: servers.host.links.add_bridge("br", "10.1.0.1/24"),
        ["host: address br: removed", "host: link br: deleted"],
    ),
    "neighbour": (add_neighbour, ["host: neighbour nic: removed", "host: up nic: taken down again"]),
}  # fmt: skip


@pytest.mark.parametrize("change", list(CHANGES))
def test_each_change_of_a_link_is_undone_and_said_once(testbed: Testbed, netns: str, change: str) -> None:
    work, said = CHANGES[change]
    before = settled_state(netns)
    left = left_by(testbed, work)
    assert state(netns) != before
    assert undone(testbed, left) == said
    require_state(netns, before)


def test_a_port_is_released(testbed: Testbed, netns: str) -> None:
    ip(netns, "link", "add", "name", "br", "type", "bridge")
    ip(netns, "link", "set", "dev", "nic", "up")

    def work(servers: Servers) -> None:
        servers.host.links.add_port("br", "nic")

    before = settled_state(netns)
    left = left_by(testbed, work)
    assert state(netns)["nic"]["master"] == "br"
    assert undone(testbed, left) == ["host: port nic: released"]
    after = settled_state(netns)
    for bridge in (before["br"], after["br"]):
        for key in ("address", "linkinfo"):  # an empty bridge has no address any more once it had a port
            del bridge[key]
    assert after == before


@pytest.mark.parametrize(("kind", "noted"), [("bridge", False), ("bridge", True), ("macvtap", False)])
def test_networks_are_undone_wherever_the_run_ended_just_before_or_just_after_it_noted_a_change(
    testbed: Testbed, netns: str, kind: str, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin_bridge_of_the_user_has_other_addresses_and_neighbours(netns)
    before = settled_state(netns)
    note, standing = Journal.note, 0

    def killed(journal: Journal, *what: Any, **more: Any) -> None:
        if noted:
            note(journal, *what, **more)
        if len(journal.standing) == standing + noted:
            raise KeyboardInterrupt
        if not noted:
            note(journal, *what, **more)

    monkeypatch.setattr(Journal, "note", killed)
    for standing in itertools.count():  # noqa: B007  killed() reads it
        ended = False
        with suppress(KeyboardInterrupt), journaled_servers(testbed) as servers:
            set_up(kind)(servers)
            ended = True
        for path in journal_folder(testbed).glob("*.journal"):
            undo_left(testbed, read_journal(path))
        require_state(netns, before)
        if ended:
            break
    assert standing >= 5


@pytest.mark.parametrize("mode", ["xdpgeneric", "xdpdrv"])
def test_an_xdp_program_is_detached(testbed: Testbed, netns: str, program: str, mode: str) -> None:
    before = settled_state(netns)
    left = left_by(testbed, lambda servers: servers.host.links.attach_xdp("nic", mode, program, "xdp"))
    assert state(netns)["nic"]["xdp"]
    assert undone(testbed, left) == ["host: xdp nic: detached"]
    require_state(netns, before)


def test_an_xdp_program_of_the_user_stays(testbed: Testbed, netns: str, program: str) -> None:
    ip(netns, "link", "set", "dev", "nic", "xdpgeneric", "obj", program, "sec", "xdp")
    before = settled_state(netns)

    def work(servers: Servers) -> None:
        servers.host.links.up("nic")
        with pytest.raises(TestbedError, match="has an XDP program already"):
            servers.host.links.attach_xdp("nic", "xdpdrv", program, "xdp")

    assert undone(testbed, left_by(testbed, work)) == ["host: up nic: taken down again"]
    require_state(netns, before)


def alive(pid: int | None) -> bool:
    return pid is not None and Path(f"/proc/{pid}").exists()


def test_a_session_is_ended_with_its_process_and_its_files_are_removed(testbed: Testbed) -> None:
    pids: list[int | None] = []

    def work(servers: Servers) -> None:
        session = servers.host.session("long", signal.SIGINT)
        session.start(["sh", "-c", "trap '' INT; echo ready; while :; do sleep 0.1; done"], sudo=True)
        session.wait_for_output("ready", 5)
        pids.append(session.pid())
        other = servers.host.session("users")
        other._note = lambda *_, **__: None
        other.start(["sleep", "60"])

    left = left_by(testbed, work)
    (change,) = left.changes
    left.changes = [dataclasses.replace(change, details={**change.details, "grace": "0.1"})]
    folder = Path("/run/autotest", os.path.basename(testbed.host.tmux_socket))
    assert undo_left(testbed, left) == ["host: session long: ended"]
    assert not alive(pids[0])
    assert sorted(os.listdir(folder)) == ["users.log", "users.pid"]
    sessions = ["tmux", "-S", testbed.host.tmux_socket, "list-sessions", "-F", "#{session_name}"]
    assert subprocess.run(sessions, capture_output=True, text=True, check=True).stdout.split() == ["users"]


def test_a_session_that_ended_by_itself_leaves_nothing_to_say(testbed: Testbed) -> None:
    def work(servers: Servers) -> None:
        session = servers.host.session("short")
        session.start(["true"])
        session.wait(5)
        deadline = time.monotonic() + 5
        while session.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)

    assert undone(testbed, left_by(testbed, work)) == []
    assert os.listdir(Path("/run/autotest", os.path.basename(testbed.host.tmux_socket))) == []


def test_a_process_that_has_the_number_of_ours_by_now_is_spared(testbed: Testbed) -> None:
    foreign = subprocess.Popen(["sleep", "60"])
    try:

        def work(servers: Servers) -> None:
            session = servers.host.session("short")
            session.start(["true"])
            session.wait(5)
            file = Path(servers.host.state_file("short.pid"))
            _, start = file.read_text().split()
            file.write_text(f"{foreign.pid} {start}")

        undone(testbed, left_by(testbed, work))
        assert foreign.poll() is None
    finally:
        foreign.kill()
        foreign.wait()


def test_a_session_of_the_user_under_our_name_is_refused_and_survives(testbed: Testbed) -> None:
    subprocess.run(["tmux", "-S", testbed.host.tmux_socket, "new-session", "-d", "-s", "guest", "sleep 60"], check=True)

    def work(servers: Servers) -> None:
        servers.host.links.up("nic")
        with pytest.raises(SessionError, match="already running"):
            servers.host.session("guest").start(["true"])

    assert undone(testbed, left_by(testbed, work)) == ["host: up nic: taken down again"]
    subprocess.run(["tmux", "-S", testbed.host.tmux_socket, "has-session", "-t", "=guest"], check=True)


@pytest.mark.parametrize("name", ["node", "it's; $(touch pwned)", "-rf"])
def test_a_file_is_removed_and_of_a_link_only_the_link(testbed: Testbed, tmp_path: Path, name: str) -> None:
    (tmp_path / "users").write_text("stays")
    paths = [tmp_path / name, tmp_path / "link", tmp_path / "dangling", tmp_path / "never made"]

    def work(servers: Servers) -> None:
        for path in paths:
            servers.host.note("file", path=str(path))
        paths[0].write_text("")
        paths[1].symlink_to(tmp_path / "users")
        paths[2].symlink_to(tmp_path / "nowhere")

    said = undone(testbed, left_by(testbed, work))
    assert said == [f"host: file {path}: removed" for path in (paths[2], paths[1], paths[0])]
    assert not any(os.path.lexists(path) for path in paths) and (tmp_path / "users").read_text() == "stays"


def test_a_guest_is_ended_and_nothing_is_asked_of_it_and_its_networks_go_last(
    testbed: Testbed, netns: str, tmp_path: Path
) -> None:
    disk = tmp_path / "root.img"
    disk.write_bytes(b"\0" * 65536)
    testbed = dataclasses.replace(testbed, host=dataclasses.replace(testbed.host, root_disk_file=str(disk)))
    before = settled_state(netns)
    pids: list[int | None] = []

    def work(servers: Servers) -> None:
        settings = GuestSettings("pcvm", INTERFACE_KINDS["macvtap"], "")
        servers.host.networks_up(settings)
        servers.host.machine(1).start(settings)
        servers.guest.note("xdp", name="eth1", mode="xdpgeneric")
        pids.append(servers.host.machine(1).session.pid())

    left = left_by(testbed, work)
    assert alive(pids[0])
    start = time.monotonic()
    said = undone(testbed, left)
    assert not alive(pids[0]) and time.monotonic() - start < 5
    assert said[0] == "host: guest guest: ended" and "host: link mvt: deleted" in said[1:]
    assert not [line for line in said if line.startswith("guest:")]
    require_state(netns, before)
    assert [name for name in os.listdir("/dev") if name.startswith("autotest-")] == []


# -- drivers, virtual functions and huge pages ---------------------------------------------------------------


NIC, PF = "0000:01:00.0", "0000:05:00.0"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """The PCI bus of every server is one in a folder, with a NIC, and one that can have virtual functions."""
    kernel = FakeKernel(tmp_path / "machine").create()
    kernel.module("e1000e", takes="8086:10d3", net=True)
    kernel.module("igbvf", takes="8086:10ed", net=True)
    kernel.module("vfio-pci")
    kernel.device(NIC, group=17, driver="e1000e")
    kernel.device(PF, group=18, driver="e1000e", vfs=4)
    kernel.set(macs={"0": "00:00:00:00:00:00", "1": "00:00:00:00:00:00"})
    kernel.ip_link_set(["dev", "eth0", "up"])
    monkeypatch.setattr(server, "PciDevices", lambda _, note: PciDevices(FakeMachine(kernel), note, str(kernel.root)))
    return kernel


def bind_nic(servers: Servers) -> None:
    servers.host.pci.bind(NIC, "vfio-pci")


def bind_function(servers: Servers) -> None:
    function, _ = servers.host.pci.set_virtual_functions(PF, 2)
    servers.host.pci.set_function_mac(PF, 0, "52:54:00:fa:00:60")
    servers.host.pci.bind(function, "vfio-pci")
    servers.host.pci.bind(NIC, "vfio-pci")


BINDINGS: dict[str, tuple[Work, list[str]]] = {
    "driver": (bind_nic, ["host: driver 0000:01:00.0: bound to e1000e again"]),
    "functions": (
        bind_function,
        [
            "host: driver 0000:01:00.0: bound to e1000e again",
            "host: driver 0000:05:00.1: without a driver again",
            "host: function-mac 0000:05:00.0: restored",
            "host: virtual-functions 0000:05:00.0: removed",
        ],
    ),
}


@pytest.mark.parametrize("change", list(BINDINGS))
def test_bindings_and_virtual_functions_are_undone_and_said_once(testbed: Testbed, kernel: FakeKernel, change: str) -> None:
    work, said = BINDINGS[change]
    before, macs = kernel.state(), kernel.known["macs"]
    left = left_by(testbed, work)
    assert kernel.state() != before and kernel.driver_of(NIC) == "vfio-pci"
    assert undone(testbed, left) == said
    assert kernel.state() == before and kernel.known["macs"] == macs


@pytest.mark.parametrize("noted", [False, True])
def test_bindings_are_undone_wherever_the_run_ended_just_before_or_just_after_it_noted_a_change(
    testbed: Testbed, kernel: FakeKernel, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel.module("ice", takes="8086:1592", net=True, loaded=False)
    kernel.device("0000:07:00.0", "8086:1592")
    loaded = {f"sys/bus/pci/drivers/{name}": "" for name in ("ice", "ice/bind", "ice/unbind")}  # which stays
    before = {**kernel.state(), **loaded}
    note, standing = Journal.note, 0

    def killed(journal: Journal, *what: Any, **more: Any) -> None:
        if noted:
            note(journal, *what, **more)
        if len(journal.standing) == standing + noted:
            raise KeyboardInterrupt
        if not noted:
            note(journal, *what, **more)

    monkeypatch.setattr(Journal, "note", killed)
    for standing in itertools.count():  # noqa: B007  killed() reads it
        ended = False
        with suppress(KeyboardInterrupt), journaled_servers(testbed) as servers:
            servers.host.pci.bind("0000:07:00.0", "ice")
            bind_function(servers)
            ended = True
        for path in journal_folder(testbed).glob("*.journal"):
            undo_left(testbed, read_journal(path))
        assert {**kernel.state(), **loaded} == before
        if ended:
            break
    assert standing >= 5


def test_a_device_that_is_in_use_stays_in_the_journal_until_its_user_is_gone(testbed: Testbed, kernel: FakeKernel) -> None:
    before = kernel.state()
    left = left_by(testbed, bind_nic)
    kernel.process(4711, "qemu-system-x86_64", "/dev/vfio/17")
    with pytest.raises(UndoFailed, match="cannot undo host: driver 0000:01:00.0: .* in use: process 4711, qemu-system-x86_64"):
        undo_left(testbed, left)
    assert kernel.driver_of(NIC) == "vfio-pci" and left.path.exists()
    shutil.rmtree(kernel.root / "proc/4711")
    assert undo_left(testbed, read_journal(left.path)) == ["host: driver 0000:01:00.0: bound to e1000e again"]
    assert kernel.state() == before and not left.path.exists()


def test_bindings_end_with_the_machines_boot(testbed: Testbed, kernel: FakeKernel) -> None:
    left = left_by(testbed, bind_nic)
    before = kernel.state()
    left.changes = [dataclasses.replace(change, boot="12345678-1234-1234-1234-123456789abc") for change in left.changes]
    assert undo_left(testbed, left) == [] and kernel.state() == before


@pytest.mark.parametrize(
    "damage", [{"count": "two"}, {"count": "-1"}, {"number": "x"}, {"interfaces": "[{}]"}, {"interfaces": "eth1"}]
)
def test_a_note_of_a_binding_that_is_damaged_is_told(testbed: Testbed, kernel: FakeKernel, damage: dict[str, str]) -> None:
    left = left_by(testbed, bind_function)
    (key,) = damage
    changes = [
        dataclasses.replace(each, details=dict(each.details) | damage) if key in each.details else each for each in left.changes
    ]
    left.changes = changes
    with pytest.raises(UndoFailed, match="the journal (has|does not tell)"):
        undo_left(testbed, left)


def test_huge_pages_are_given_back(testbed: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("Hugepagesize:       2048 kB\n")
    folder = tmp_path / "sys/kernel/mm/hugepages/hugepages-2048kB"
    folder.mkdir(parents=True)
    for name, count in {"nr": 3, "free": 1, "resv": 0}.items():
        (folder / f"{name}_hugepages").write_text(f"{count}\n")
    monkeypatch.setattr(server, "Hugepages", lambda transport, note: Hugepages(transport, note, str(tmp_path)))
    left = left_by(testbed, lambda servers: servers.host.hugepages.require(8))
    assert (folder / "nr_hugepages").read_text() == "6"
    path = "sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
    assert undone(testbed, left) == [f"host: hugepages {path}: given back"]
    assert (folder / "nr_hugepages").read_text() == "3"


# -- unusual states ----------------------------------------------------------------------------------------


def nic_is_up(netns: str) -> None:
    ip(netns, "link", "set", "dev", "nic", "up")


def nic_has_addresses_and_is_down(netns: str) -> None:
    ip(netns, "address", "add", "10.7.0.1/24", "dev", "nic")
    ip(netns, "address", "add", "10.7.0.2/24", "dev", "nic", "label", "nic:2")


def nic_has_its_own_settings(netns: str) -> None:
    ip(netns, "link", "set", "dev", "nic", "mtu", "1400", "txqueuelen", "7", "promisc", "on", "alias", "the user's")
    ip(netns, "link", "set", "dev", "nic", "up")
    ip(netns, "address", "add", "fd00::1/64", "dev", "nic", "nodad")


def bridge_of_the_user_has_the_nic(netns: str) -> None:
    ip(netns, "link", "add", "name", "br", "type", "bridge", "forward_delay", "200", "stp_state", "1")
    ip(netns, "link", "set", "dev", "nic", "mtu", "9000")
    ip(netns, "link", "set", "dev", "nic", "master", "br")
    ip(netns, "address", "add", "10.1.2.3/24", "dev", "br")
    ip(netns, "link", "set", "dev", "br", "up")


def bridge_of_the_user_has_the_nic_and_is_down(netns: str) -> None:
    bridge_of_the_user_has_the_nic(netns)
    ip(netns, "link", "set", "dev", "br", "down")


def admin_bridge_of_the_user_has_our_address(netns: str) -> None:
    ip(netns, "link", "add", "name", "adm", "address", "52:54:00:00:00:99", "type", "bridge")
    ip(netns, "address", "add", "10.9.0.1/24", "dev", "adm")
    ip(netns, "address", "add", "10.9.0.77/24", "dev", "adm")
    ip(netns, "link", "set", "dev", "adm", "up")


def admin_bridge_of_the_user_has_other_addresses_and_neighbours(netns: str) -> None:
    ip(netns, "link", "add", "name", "adm", "address", "52:54:00:00:00:99", "type", "bridge")
    ip(netns, "address", "add", "10.9.0.77/24", "dev", "adm")
    ip(netns, "link", "set", "dev", "adm", "up")
    ip(netns, "neighbour", "add", "10.9.0.50", "lladdr", "52:54:00:00:00:50", "dev", "adm", "nud", "permanent")


def admin_bridge_of_the_user_has_our_neighbour(netns: str) -> None:
    admin_bridge_of_the_user_has_our_address(netns)
    ip(netns, "neighbour", "add", "10.9.0.2", "lladdr", "52:54:00:fa:00:5f", "dev", "adm", "nud", "permanent")


def admin_bridge_of_the_user_has_another_neighbour_for_our_address(netns: str) -> None:
    admin_bridge_of_the_user_has_our_address(netns)
    ip(netns, "neighbour", "add", "10.9.0.2", "lladdr", "52:54:00:00:00:50", "dev", "adm", "nud", "permanent")


def tap_of_the_user_is_in_his_bridge(netns: str) -> None:
    bridge_of_the_user_has_the_nic(netns)
    ip(netns, "tuntap", "add", "dev", "tap", "mode", "tap")
    ip(netns, "link", "set", "dev", "tap", "master", "br")


def macvtap_of_the_user(netns: str) -> None:
    ip(netns, "link", "add", "link", "nic", "name", "mvt", "address", "52:54:00:fa:00:60", "type", "macvtap", "mode", "bridge")


def others_are_on_the_nic(netns: str) -> None:
    ip(netns, "link", "add", "link", "nic", "name", "other", "type", "macvtap", "mode", "bridge")
    ip(netns, "link", "set", "dev", "nic", "up")
    ip(netns, "link", "set", "dev", "other", "up")


UNUSUAL = {
    "bridge": (
        nic_is_up, nic_has_addresses_and_is_down, nic_has_its_own_settings, bridge_of_the_user_has_the_nic,
        bridge_of_the_user_has_the_nic_and_is_down, admin_bridge_of_the_user_has_our_address,
        admin_bridge_of_the_user_has_our_neighbour, admin_bridge_of_the_user_has_another_neighbour_for_our_address,
        admin_bridge_of_the_user_has_other_addresses_and_neighbours, tap_of_the_user_is_in_his_bridge,
    ),
    "macvtap": (nic_has_addresses_and_is_down, macvtap_of_the_user, others_are_on_the_nic),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "prepare"), [(kind, each) for kind, states in UNUSUAL.items() for each in states])
def test_an_unusual_state_is_found_again(testbed: Testbed, netns: str, kind: str, prepare: Callable[[str], None]) -> None:
    prepare(netns)
    before = settled_state(netns)
    left = left_by(testbed, set_up(kind))
    assert state(netns) != before
    undone(testbed, left)
    require_state(netns, before)


@pytest.mark.parametrize(("kind", "name"), [("bridge", "br"), ("bridge", "tap"), ("bridge", "adm"), ("macvtap", "mvt")])
def test_a_foreign_link_under_a_name_of_ours_is_refused_and_survives(testbed: Testbed, netns: str, kind: str, name: str) -> None:
    ip(netns, "link", "add", "name", name, "type", "veth", "peer", "name", "foreign")
    before = settled_state(netns)

    def work(servers: Servers) -> None:
        servers.host.links.up("peer")
        servers.host.links.up("nic")
        with pytest.raises(TestbedError, match=f"{name} is veth, not"):
            set_up(kind)(servers)

    assert undone(testbed, left_by(testbed, work))[-1] == "host: up nic: taken down again"
    require_state(netns, before)


def test_a_foreign_link_that_took_the_place_of_ours_survives(testbed: Testbed, netns: str) -> None:
    left = left_by(testbed, set_up("bridge"))
    for name in ("tap", "br"):
        ip(netns, "link", "delete", "dev", name)
    ip(netns, "link", "add", "name", "tap", "type", "veth", "peer", "name", "br")
    said = undone(testbed, left)
    assert not [line for line in said if " br" in line or " tap" in line]
    assert {"tap", "br"} <= state(netns).keys() and not {"adm", "admtap"} & state(netns).keys()


def test_the_nic_that_the_user_has_put_into_another_bridge_meanwhile_stays_there(testbed: Testbed, netns: str) -> None:
    left = left_by(testbed, set_up("bridge"))
    ip(netns, "link", "add", "name", "users", "type", "bridge")
    ip(netns, "link", "set", "dev", "nic", "master", "users")
    assert "host: port nic: released" not in undone(testbed, left)
    assert state(netns)["nic"]["master"] == "users"


def test_what_the_user_removed_meanwhile_is_no_problem(testbed: Testbed, netns: str) -> None:
    left = left_by(testbed, set_up("bridge"))
    for name in ("tap", "br", "nic", "admtap"):
        ip(netns, "link", "delete", "dev", name)
    ip(netns, "address", "flush", "dev", "adm")
    assert undone(testbed, left)[-1] == "host: link adm: deleted"
    assert state(netns).keys() == {"lo", "neighbours"}


def test_where_the_namespace_is_gone_its_links_are_but_sessions_and_files_are_ended(
    testbed: Testbed, make_netns: Callable[[], str], tmp_path: Path
) -> None:
    gone = make_netns()
    testbed = dataclasses.replace(testbed, host=dataclasses.replace(testbed.host, netns=gone))
    add_nic(gone)
    file = tmp_path / "file"
    pids: list[int | None] = []

    def work(servers: Servers) -> None:
        servers.host.links.add_bridge("br", "10.0.0.1/24")
        servers.host.links.up("nic")
        session = servers.host.session("long")
        session.start(["sh", "-c", "echo ready; exec sleep 60"])
        session.wait_for_output("ready", 5)
        pids.append(session.pid())
        servers.host.note("file", path=str(file))
        file.touch()

    left = left_by(testbed, work)
    subprocess.run(["ip", "netns", "delete", gone], check=True)
    try:
        assert undo_left(testbed, left) == [f"host: file {file}: removed", "host: session long: ended"]
    finally:
        subprocess.run(["ip", "netns", "add", gone], check=True)
    assert not alive(pids[0]) and not left.path.exists()


def test_after_another_boot_of_the_machine_only_files_are_left_to_remove(testbed: Testbed, netns: str, tmp_path: Path) -> None:
    file = tmp_path / "file"

    def work(servers: Servers) -> None:
        set_up("bridge")(servers)
        servers.host.session("users").start(["sleep", "60"])
        servers.host.note("file", path=str(file))
        file.touch()

    left = left_by(testbed, work)
    assert all(change.boot for change in left.changes)
    left.changes = [dataclasses.replace(change, boot="12345678-1234-1234-1234-123456789abc") for change in left.changes]
    before = {name: link["flags"] for name, link in state(netns).items() if name != "neighbours"}
    assert undo_left(testbed, left) == [f"host: file {file}: removed"]
    assert {name: link["flags"] for name, link in state(netns).items() if name != "neighbours"} == before
    assert not left.path.exists() and "UP" in before["tap"]
    subprocess.run(["tmux", "-S", testbed.host.tmux_socket, "has-session", "-t", "=users"], check=True)


# -- who and how -------------------------------------------------------------------------------------------


def test_a_server_is_reached_as_it_was_whatever_the_configuration_says_now(
    testbed: Testbed, netns: str, make_netns: Callable[[], str]
) -> None:
    before = settled_state(netns)
    other = make_netns()

    def work(servers: Servers) -> None:
        servers.loadgen.links.up("nic")

    left = left_by(testbed, work)
    changed = dataclasses.replace(testbed, loadgen=LoadGenConfig(fqdn="localhost", netns=other))
    assert undo_left(changed, left) == ["loadgen: up nic: taken down again"]
    require_state(netns, before)


def test_what_nobody_can_undo_is_told_and_stays_and_the_rest_is_undone(testbed: Testbed, netns: str) -> None:
    before = settled_state(netns)

    def work(servers: Servers) -> None:
        servers.host.links.up("nic")
        servers.host.note("teleport", name="nic")
        servers.journal.note("moon", "link", details={"name": "nic"})

    left = left_by(testbed, work)
    with pytest.raises(UndoFailed) as raised:
        undo_left(testbed, left)
    assert "cannot undo host: teleport nic: this autotest cannot undo a change of kind 'teleport'" in str(raised.value)
    assert "cannot undo moon: link nic: the journal names a server 'moon'" in str(raised.value)
    require_state(netns, before)
    assert [change.kind for change in read_journal(left.path).changes] == ["teleport", "link"]
    with pytest.raises(UndoFailed):
        undo_left(testbed, read_journal(left.path), forget=True)
    assert not left.path.exists()


def test_a_program_that_does_not_heed_its_signal_gets_at_most_a_second_in_a_hurry(
    testbed: Testbed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(servers: Servers) -> None:
        session = servers.host.session("stubborn", grace=30.0)
        session.start(["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"])
        session.wait_for_output("ready", 5)

    left = left_by(testbed, work)
    monkeypatch.setattr(interruption, "_requested", True)
    start = time.monotonic()
    assert undo_left(testbed, left) == ["host: session stubborn: ended"]
    assert 0.9 < time.monotonic() - start < 4
