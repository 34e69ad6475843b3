"""One guest of several as the host sees it: what is called how, and that it ends alone; a real QEMU where one is needed."""

from __future__ import annotations

import dataclasses
import os
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hostile import FakeMachine

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import QemuError, TestbedError, WaitTimeout
from autotest.interfaces import INTERFACE_KINDS
from autotest.interfaces.kind import SOCKETS
from autotest.qemu import qmp
from autotest.remote.wait import stopping
from autotest.run.journal import Change, Journal, read_journal
from autotest.servers.guest import GuestSettings
from autotest.servers.host import Host
from autotest.servers.testbed import Servers
from autotest.servers.virtual_machine import VirtualMachine


def settings(interface: str = "bridge") -> GuestSettings:
    return GuestSettings("pcvm", INTERFACE_KINDS[interface], "")


def a_testbed(**keys: Any) -> Testbed:
    config = HostConfig(
        fqdn="far", test_iface="nic", test_tap="tap", test_macvtap="mvt", admin_tap="admtap", tmux_socket="/s/sock", **keys
    )
    guest = GuestConfig(fqdn="vm.example.org", test_iface_mac="52:54:00:fa:00:60", admin_iface_mac="52:54:00:fa:00:5f")
    return Testbed(Path("t"), config, guest, LoadGenConfig(fqdn="l"))


def machine(number: int, answer: Any = lambda command: "", **keys: Any) -> VirtualMachine:
    return Host(a_testbed(**keys), FakeMachine(answer)).machine(number)


# -- names --------------------------------------------------------------------------------------------------


def test_the_first_guest_has_the_names_that_the_only_one_always_had() -> None:
    first = machine(1)
    state = first.host.state_dir
    assert (first.name, first.session.name, first.guest.name) == ("guest", "guest", "guest")
    assert first.qmp_socket == f"{state}/guest.qmp"
    assert [first.socket(key) for key in SOCKETS] == [f"{state}/{name}" for name in SOCKETS.values()]
    assert [first.own_name(name) for name in ("testpmd", "vmux", "vhost.sock")] == ["testpmd", "vmux", "vhost.sock"]
    assert first.config == first.host.config and first.testbed is first.host.testbed


def test_the_third_guest_has_names_of_its_own() -> None:
    third = machine(3)
    state = third.host.state_dir
    assert (third.name, third.session.name, third.guest.name) == ("guest3", "guest3", "guest3")
    assert third.qmp_socket == f"{state}/guest3.qmp"
    assert third.own_name("testpmd") == "testpmd-3" and third.own_name("vhost.sock") == "vhost-3.sock"
    assert third.socket("vhost_user_socket_path") == f"{state}/{SOCKETS['vhost_user_socket_path'].replace('.', '-3.')}"
    assert (third.config.test_tap, third.config.test_macvtap, third.config.admin_tap) == ("tap-3", "mvt-3", "admtap-3")
    assert third.guest.config.fqdn == "vm3.example.org" and third.guest.config.test_iface_mac == "52:54:00:fa:00:62"
    assert third.nic_link == "nic-3"


def test_a_socket_that_is_configured_is_the_first_guests_and_that_of_others_is_beside_it() -> None:
    keys = {"vmux_socket_path": "/run/v.sock"}
    assert machine(1, **keys).socket("vmux_socket_path") == "/run/v.sock"
    assert machine(3, **keys).socket("vmux_socket_path") == "/run/v-3.sock"


def test_no_two_guests_share_a_name() -> None:
    host = machine(1).host
    every = [host.machine(number) for number in range(1, 30)]
    for names in (
        [each.name for each in every],
        [each.qmp_socket for each in every],
        [each.socket(key) for each in every for key in SOCKETS],
        [each.own_name("testpmd") for each in every],
        [name for each in every for name in (each.config.test_tap, each.config.admin_tap, each.config.test_macvtap)],
        [mac for each in every for mac in (each.guest.config.test_iface_mac,)],
    ):
        assert len(set(names)) == len(names)


def test_a_guest_is_found_by_its_name_and_nothing_else_is_one() -> None:
    host = machine(1).host
    assert host.named_machine("guest") is host.machine(1) and host.named_machine("guest12") is host.machine(12)
    for name in ("guest1", "guest0", "guest01", "guests", "host", "guest-2", ""):
        with pytest.raises(TestbedError, match=f"no guest is called '{name}'"):
            host.named_machine(name)


def test_a_guest_whose_values_cannot_be_counted_up_is_named() -> None:
    testbed = a_testbed()
    guest = dataclasses.replace(testbed.guest, test_iface_mac="52:54:00:ff:ff:fe")
    host = Host(dataclasses.replace(testbed, guest=guest), FakeMachine())
    assert host.machine(2).guest.config.test_iface_mac == "52:54:00:ff:ff:ff"
    with pytest.raises(TestbedError, match=r"^guest3: \[guest\] test_iface_mac: "):
        host.machine(3)


# -- what is passed through ---------------------------------------------------------------------------------


def test_each_guest_has_its_own_virtual_function_and_without_one_for_it_that_is_said() -> None:
    host = machine(1, test_iface_addr="0000:05:00.0", test_iface_vfs=2).host
    host.functions = ("0000:05:00.1", "0000:05:00.2")
    assert [host.machine(number).nic_address for number in (1, 2)] == ["0000:05:00.1", "0000:05:00.2"]
    with pytest.raises(TestbedError, match=r"^host: test_iface_vfs of \[host\] has no NIC for guest3$"):
        _ = host.machine(3).nic_address


def test_without_virtual_functions_each_further_guest_has_a_nic_of_guest_nics() -> None:
    host = machine(1, test_iface_addr="0000:05:00.0", guest_nics=(("0000:06:00.0", "52:54:00:00:00:06"),)).host
    assert [host.machine(number).nic_address for number in (1, 2)] == ["0000:05:00.0", "0000:06:00.0"]
    with pytest.raises(TestbedError, match=r"^host: guest_nics of \[host\] has no NIC for guest3$"):
        _ = host.machine(3).nic_address


# -- a guest of a real QEMU ---------------------------------------------------------------------------------


def start(host: Host, count: int, interface: str = "bridge") -> list[VirtualMachine]:
    host.networks_up(settings(interface), count)
    machines = [host.machine(number) for number in range(1, count + 1)]
    for each in machines:
        each.start(settings(interface))
    return machines


@pytest.mark.parametrize("interface", ["bridge", "macvtap"])
def test_several_guests_run_beside_each_other_and_one_is_ended_alone(host: Host, interface: str) -> None:
    first, second, third = start(host, 3, interface)
    assert host.running_machines() == [first, second, third] and host.guest_is_running()
    for each in (first, third):
        with qmp.connect(host.transport, each.qmp_socket) as control:
            assert control.status() == "running"
    second.end(settings(interface))
    assert host.running_machines() == [first, third] and not os.path.exists(second.qmp_socket)
    assert "guest2" not in [change.machine for change in host.journal.standing]
    assert host.kill_guest() == ["guest", "guest3"]
    assert host.running_machines() == [] and not host.guest_is_running()


def test_a_guest_that_was_ended_runs_again_on_the_links_that_it_left(host: Host) -> None:
    _, second = start(host, 2)
    second.end(settings())
    second.attach(settings())
    second.start(settings())
    second.require_running()
    host.journal.undo()
    assert not host.guest_is_running() and {"br", "adm", "tap", "tap-2"} & names_of_links(host) == set()


def names_of_links(host: Host) -> set[str]:
    return {link["ifname"] for link in host.links.all()}


def snapshots(each: VirtualMachine) -> bool:
    line = str(each.facts["command line"])
    assert "root.img" in line
    return "snapshot=on" in line


@pytest.mark.parametrize(("count", "expected"), [(1, False), (2, True)])
def test_of_several_guests_none_writes_to_the_disk_that_they_share(host: Host, count: int, expected: bool) -> None:
    config = dataclasses.replace(host.config, root_disk_snapshot=False)
    host = Host(dataclasses.replace(host.testbed, host=config))
    try:
        assert [snapshots(each) for each in start(host, count)] == [expected] * count
    finally:
        for each in host.running_machines():
            each.one_of_several = True  # else it gets a minute to shut down, and there is no system on its disk
            each.kill()


def test_whose_qemu_it_was_is_said_where_there_are_several(host: Host) -> None:
    first, second = start(host, 2)
    os.kill(second.session.pid() or 0, 9)
    with pytest.raises(QemuError, match="^host: guest2: QEMU ended with exit code 137"):
        second.wait_for_login(5)
    first.require_running()


def test_a_vcpu_of_each_guest_gets_a_cpu_of_its_own_where_there_are_enough(host: Host) -> None:
    cpus = host.cpus[:2]
    assert len(cpus) == 2
    config = dataclasses.replace(host.config, cpus_vcpus=cpus)
    pinned = Host(dataclasses.replace(host.testbed, host=config), journal=host.journal)
    machines = start(pinned, 2)
    assert [[thread.cpus for thread in each.placed if thread.name == "vcpu 0"] for each in machines] == [[cpus[:1]], [cpus[1:]]]


# -- what an earlier process left ---------------------------------------------------------------------------


def test_what_an_earlier_process_left_of_one_guest_ends_that_one_and_no_other(host: Host, tmp_path: Path) -> None:
    earlier = Host(host.testbed, journal=Journal(lambda change: None, tmp_path / "journal"))
    start(earlier, 3)
    left = read_journal(tmp_path / "journal")
    (noted,) = [change for change in left.changes if change.machine == "guest2"]
    assert (noted.server, noted.kind, noted.details["name"]) == ("host", "guest", "guest2")
    servers = Servers(host.testbed)
    assert servers.undo(noted) == "host: guest guest2: ended"
    assert [each.name for each in servers.host.running_machines()] == ["guest", "guest3"]
    assert servers.undo(noted) is None
    servers.journal._standing = {change.number: change for change in left.changes}
    servers.journal.undo()
    assert servers.host.running_machines() == []


def test_a_note_of_a_guest_by_an_older_process_is_of_the_only_one(host: Host) -> None:
    _, second = start(host, 2)
    older = Change(1, "host", "guest", {"name": "guest", "end_signal": "SIGTERM", "grace": "5.0"}, machine="guest")
    assert Servers(host.testbed).undo(older) == "host: guest guest: ended"
    assert host.running_machines() == [second]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("name", ["guest", "guest2"])
def test_what_was_changed_in_a_guest_is_undone_there_only_while_that_guest_runs(
    monkeypatch: pytest.MonkeyPatch, name: str, is_running: bool
) -> None:
    servers = Servers(a_testbed(), transports={"host": FakeMachine()})
    running = name if is_running else "guest3"
    monkeypatch.setattr(VirtualMachine, "is_running", lambda self: self.name == running)
    asked: list[str] = []

    def ask(of: str, command: Sequence[str]) -> str:
        asked.append(of)
        return ""

    for number in (1, 2):
        machine_ = servers.host.machine(number)
        machine_.guest.__dict__["transport"] = FakeMachine(partial(ask, machine_.name))
    assert servers.undo(Change(1, name, "file", {"path": "/tmp/x"})) is None
    assert set(asked) == ({name} if is_running else set())


def test_a_change_of_a_server_that_no_testbed_has_is_told() -> None:
    servers = Servers(a_testbed(), transports={"host": FakeMachine()})
    with pytest.raises(TestbedError, match="the journal names a server 'guest1', which this testbed has not"):
        servers.undo(Change(1, "guest1", "link", {"name": "x", "type": "tap"}))


# -- several at once ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_told", [False, True])
def test_a_guest_that_is_told_to_stop_before_its_turn_comes_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    host, stop, attached = machine(1).host, threading.Event(), list[str]()

    def attach(self: VirtualMachine, settings: GuestSettings) -> None:
        attached.append(self.name)
        raise TestbedError("host: no tap")

    monkeypatch.setattr(VirtualMachine, "attach", attach)
    if is_told:
        stop.set()
    with stopping(stop), pytest.raises(WaitTimeout if is_told else TestbedError, match="given up" if is_told else "no tap"):
        host.machine(2).boot(settings())
    assert attached == ([] if is_told else ["guest2"])


def test_of_a_boot_that_failed_before_qemu_was_there_nothing_is_known_at_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of its process between wire and guest are gone: a guest would be looked after that has lost them."""
    each = machine(1)

    def attach(self: VirtualMachine, settings: GuestSettings) -> None:
        self.placed += [object()]  # type: ignore[list-item]
        self.switch_facts = {"switch version": str(len(boots))}

    boots: list[int] = []

    def start(self: VirtualMachine, settings: GuestSettings) -> None:
        boots.append(len(self.placed))
        raise TestbedError("host: no huge pages")

    monkeypatch.setattr(VirtualMachine, "attach", attach)
    monkeypatch.setattr(VirtualMachine, "start", start)
    for _ in range(2):
        with pytest.raises(TestbedError, match="no huge pages"):
            each.boot(settings())
    assert boots == [1, 1]
