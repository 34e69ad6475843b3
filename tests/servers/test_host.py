"""The host and the life of its guest: a real QEMU in a namespace, with an empty disk, so that nothing boots."""

from __future__ import annotations

import dataclasses
import os
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from autotest.config.testbed import LoadGenConfig
from autotest.errors import AutotestError, CommandError, QemuError, WaitTimeout
from autotest.interfaces import INTERFACE_KINDS
from autotest.network.links import Links
from autotest.qemu import qmp
from autotest.remote.local import LocalTransport
from autotest.servers.guest import GuestSettings
from autotest.servers.host import Host
from autotest.servers.testbed import Servers


def settings(interface: str = "bridge", **more: object) -> GuestSettings:
    return GuestSettings("pcvm", INTERFACE_KINDS[interface], "", **more)  # type: ignore[arg-type]


def with_values(machine: Host, **sections: dict[str, object]) -> Host:
    """Another host, with other values for keys, by section."""
    changed: dict[str, Any] = {
        name: dataclasses.replace(getattr(machine.testbed, name), **values) for name, values in sections.items()
    }
    return Host(dataclasses.replace(machine.testbed, **changed))


def run(host: Host, interface: str = "bridge", **more: object) -> None:
    host.networks_up(settings(interface, **more))
    host.machine(1).start(settings(interface, **more))


@pytest.mark.parametrize("interface", ["bridge", "macvtap"])
def test_a_guest_runs_on_its_interface_and_is_ended_in_order(host: Host, interface: str) -> None:
    run(host, interface)
    assert host.guest_is_running()
    pid = host.machine(1).session.pid()
    assert b"qemu-system" in Path(f"/proc/{pid}/cmdline").read_bytes()
    with qmp.connect(host.transport, host.machine(1).qmp_socket) as control:
        assert control.status() == "running"
    assert host.kill_guest() == ["guest"]
    assert not Path(f"/proc/{pid}").exists() and not os.path.exists(host.machine(1).qmp_socket)
    assert host.kill_guest() == []


def test_a_second_guest_is_refused_and_the_first_stays_as_it_was(host: Host) -> None:
    run(host)
    pid = host.machine(1).session.pid()
    with pytest.raises(AutotestError, match="already running"):
        host.machine(1).start(settings())
    assert host.machine(1).session.pid() == pid
    assert qmp.is_listening(host.transport, host.machine(1).qmp_socket)


def test_a_qemu_that_does_not_start_says_why_at_once(host: Host) -> None:
    disk = Path(str(host.config.root_disk_file)).with_suffix(".qcow2")
    disk.write_bytes(b"no image")
    host = with_values(host, host={"root_disk_file": str(disk)})
    start = time.monotonic()
    with pytest.raises(QemuError, match="(?s)QEMU ended with exit code 1.*Image is not in qcow2 format"):
        run(host)
    assert time.monotonic() - start < 5
    assert not host.guest_is_running()


def test_huge_pages_of_the_guest_are_reserved_and_given_back(host: Host) -> None:
    before = host.hugepages.state().counts
    host = with_values(host, guest={"hugepages": True})
    with host.journal.scope():
        run(host)
        assert "hugetlb=on" in host.machine(1).facts["command line"] and host.guest_is_running()
    assert host.hugepages.state().counts == before and not host.guest_is_running()


def test_a_qemu_that_is_not_there_is_named(host: Host) -> None:
    wanted = GuestSettings("pcvm", INTERFACE_KINDS["bridge"], "/no/qemu")
    host.networks_up(wanted)
    with pytest.raises(CommandError, match="/no/qemu/qemu-system-x86_64"):
        host.machine(1).start(wanted)


def test_a_guest_that_never_takes_logins_has_a_deadline_and_is_ended(host: Host) -> None:
    host.networks_up(settings())
    with pytest.raises(WaitTimeout, match="an SSH login at 10.9.0.2"):
        with host.guests.running(settings(), 1):
            raise AssertionError("it took a login")
    assert not host.guest_is_running()


def test_a_killed_qemu_is_noticed_while_the_guest_is_waited_for(host: Host) -> None:
    run(host)
    os.kill(host.machine(1).session.pid() or 0, 9)
    with pytest.raises(QemuError, match="exit code 137"):
        host.machine(1).wait_for_login(5)


def test_a_qemu_that_does_not_answer_is_ended_all_the_same(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qmp, "_TIMEOUT", 0.2)
    run(host)
    pid = host.machine(1).session.pid()
    with socket.socket(socket.AF_UNIX) as busy:  # QMP serves one at a time
        busy.connect(host.machine(1).qmp_socket)
        assert host.kill_guest() == ["guest"]
    assert not Path(f"/proc/{pid}").exists()


def test_a_debugger_can_attach(host: Host) -> None:
    run(host, debug=True)
    with socket.socket(socket.AF_UNIX) as gdb:
        gdb.settimeout(5)
        gdb.connect(host.state_file("guest.gdb"))
        gdb.sendall(b"$?#3f")
        assert gdb.recv(100).startswith((b"+", b"$"))


def test_the_neighbour_of_the_guest_is_known(host: Host) -> None:
    with host.admin_network():
        host.machine(1).attach(settings("macvtap"))
        shown = host.run(["ip", "neighbour", "show", "dev", "adm"]).stdout
        assert "10.9.0.2 lladdr 52:54:00:fa:00:5f PERMANENT" in shown


def test_a_qemu_that_goes_on_without_vhost_is_not_measured_under_that_name(host: Host) -> None:
    run(host)
    host.machine(1).require_running()
    with open(host.state_file("guest.log"), "a") as log:  # what its net/vhost_net.c says
        log.write("qemu-system-x86_64: unable to start vhost net: 14: falling back on userspace virtio\n")
    with pytest.raises(QemuError, match="goes on without vhost: unable to start vhost net: 14"):
        host.machine(1).require_running()


def test_an_end_of_the_wire_that_has_its_link_only_with_moongen_is_not_waited_for(host: Host) -> None:
    host.links.up("nic")
    Links(LocalTransport("here", host.config.netns)).down("peer")
    asleep = dataclasses.replace(host.testbed, loadgen=LoadGenConfig(fqdn="localhost", test_iface_dpdk_driv="vfio-pci"))
    with Servers(asleep) as servers:
        start = time.monotonic()
        with servers.host.test_network(INTERFACE_KINDS["bridge"], guest=True):
            assert "nic" in servers.host.links.require("nic")["ifname"]
        assert time.monotonic() - start < 5


def test_a_guest_without_a_kernel_driver_needs_the_pci_address_in_it() -> None:
    assert {"test_iface_addr", "test_iface_dpdk_driv"} <= set(INTERFACE_KINDS["vmux-vdpdk"].keys("pcvm")["guest"])
    assert "test_iface_addr" not in INTERFACE_KINDS["vmux-pt"].keys("pcvm")["guest"]
