"""The host and the life of its guest: a real QEMU in a namespace, with an empty disk, so that nothing boots."""

from __future__ import annotations

import dataclasses
import os
import shutil
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import AutotestError, CommandError, QemuError, WaitTimeout
from autotest.interfaces import INTERFACE_KINDS
from autotest.network.links import Links
from autotest.qemu import qmp
from autotest.remote.local import LocalTransport
from autotest.servers.guest import Guest, GuestSettings
from autotest.servers.host import Host
from autotest.servers.testbed import Servers


@pytest.fixture
def host(netns: str, tmux_socket: str, tmp_path: Path) -> Iterator[Host]:
    """A host in a namespace of its own, with a veth as NIC and an empty disk."""
    here = LocalTransport("here")
    here.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"])
    Links(LocalTransport("here", netns)).up("peer")
    disk = tmp_path / "root.img"
    disk.write_bytes(b"\0" * 65536)
    config = HostConfig(
        fqdn="localhost", netns=netns, tmux_socket=f"{tmux_socket}-{os.getpid()}", test_iface="nic", test_bridge="br",
        test_tap="tap", test_macvtap="mvt", admin_bridge="adm", admin_tap="admtap", accelerator="tcg",
        admin_bridge_ip_net="10.9.0.1/24", root_disk_file=str(disk), root_disk_snapshot=True,
    )  # fmt: skip
    guest = GuestConfig(
        fqdn="10.9.0.2", netns=netns, vcpus=1, memory=32, admin_iface_mac="52:54:00:fa:00:5f",
        test_iface_mac="52:54:00:fa:00:60", boot_timeout=1,
    )  # fmt: skip
    host = Host(Testbed(tmp_path / "c", config, guest, LoadGenConfig(fqdn="localhost")))
    yield host
    host.kill_guest()
    here.run(["tmux", "-S", config.tmux_socket, "kill-server"], check=False)
    shutil.rmtree(host.state_dir)


def settings(interface: str = "bridge", **more: object) -> GuestSettings:
    return GuestSettings("pcvm", INTERFACE_KINDS[interface], "", **more)  # type: ignore[arg-type]


def run(host: Host, interface: str = "bridge", **more: object) -> None:
    host.networks_up(INTERFACE_KINDS[interface])
    host.run_guest(settings(interface, **more), host.config, host.testbed.guest)


@pytest.mark.parametrize("interface", ["bridge", "macvtap"])
def test_a_guest_runs_on_its_interface_and_is_ended_in_order(host: Host, interface: str) -> None:
    run(host, interface)
    assert host.guest_is_running()
    pid = host.guest_session.pid()
    assert b"qemu-system" in Path(f"/proc/{pid}/cmdline").read_bytes()
    with qmp.connect(host.transport, host.qmp_socket) as control:
        assert control.status() == "running"
    assert host.kill_guest() is True
    assert not Path(f"/proc/{pid}").exists() and not os.path.exists(host.qmp_socket)
    assert host.kill_guest() is False


def test_a_second_guest_is_refused_and_the_first_stays_as_it_was(host: Host) -> None:
    run(host)
    pid = host.guest_session.pid()
    with pytest.raises(AutotestError, match="already running"):
        host.run_guest(settings(), host.config, host.testbed.guest)
    assert host.guest_session.pid() == pid
    assert qmp.is_listening(host.transport, host.qmp_socket)


def test_a_qemu_that_does_not_start_says_why_at_once(host: Host) -> None:
    disk = Path(str(host.config.root_disk_file)).with_suffix(".qcow2")
    disk.write_bytes(b"no image")
    host.config = dataclasses.replace(host.config, root_disk_file=str(disk))
    start = time.monotonic()
    with pytest.raises(QemuError, match="(?s)QEMU ended with exit code 1.*Image is not in qcow2 format"):
        run(host)
    assert time.monotonic() - start < 5
    assert not host.guest_is_running()


def test_huge_pages_of_the_guest_are_reserved_and_given_back(host: Host) -> None:
    before = host.hugepages.state().counts
    guest = dataclasses.replace(host.testbed.guest, hugepages=True)
    with host.journal.scope():
        host.networks_up(INTERFACE_KINDS["bridge"])
        host.run_guest(settings(), host.config, guest)
        assert "hugetlb=on" in host.guest_facts["command line"] and host.guest_is_running()
    assert host.hugepages.state().counts == before and not host.guest_is_running()


def test_a_qemu_that_is_not_there_is_named(host: Host) -> None:
    host.networks_up(INTERFACE_KINDS["bridge"])
    wanted = GuestSettings("pcvm", INTERFACE_KINDS["bridge"], "/no/qemu")
    with pytest.raises(CommandError, match="/no/qemu/qemu-system-x86_64"):
        host.run_guest(wanted, host.config, host.testbed.guest)


def test_a_guest_that_never_takes_logins_has_a_deadline_and_is_ended(host: Host) -> None:
    host.networks_up(INTERFACE_KINDS["bridge"])
    guest = Guest("guest", host.testbed.guest)
    with pytest.raises(WaitTimeout, match="an SSH login at 10.9.0.2"):
        with host.running_guest(settings(), guest):
            raise AssertionError("it took a login")
    assert not host.guest_is_running()


def test_a_killed_qemu_is_noticed_while_the_guest_is_waited_for(host: Host) -> None:
    run(host)
    os.kill(host.guest_session.pid() or 0, 9)
    with pytest.raises(QemuError, match="exit code 137"):
        host.wait_for_guest(Guest("guest", host.testbed.guest), 5)


def test_a_qemu_that_does_not_answer_is_ended_all_the_same(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qmp, "_TIMEOUT", 0.2)
    run(host)
    pid = host.guest_session.pid()
    with socket.socket(socket.AF_UNIX) as busy:  # QMP serves one at a time
        busy.connect(host.qmp_socket)
        assert host.kill_guest() is True
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
        shown = host.run(["ip", "neighbour", "show", "dev", "adm"]).stdout
        assert "10.9.0.2 lladdr 52:54:00:fa:00:5f PERMANENT" in shown


def test_a_qemu_that_goes_on_without_vhost_is_not_measured_under_that_name(host: Host) -> None:
    run(host)
    host.require_running_guest()
    with open(host.state_file("guest.log"), "a") as log:  # what its net/vhost_net.c says
        log.write("qemu-system-x86_64: unable to start vhost net: 14: falling back on userspace virtio\n")
    with pytest.raises(QemuError, match="goes on without vhost: unable to start vhost net: 14"):
        host.require_running_guest()


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
