"""vhost-user: the command line of testpmd, and its life from the first link on the host to the last."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig
from autotest.errors import TestbedError
from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions, vhost_user
from autotest.qemu.parts import Machine
from autotest.run.journal import Journal, read_journal
from autotest.servers.host import Host
from autotest.servers.undoing import undo

KIND = INTERFACE_KINDS["vhost-user"]
OPTIONS = InterfaceOptions()
KERNEL_NIC = HostConfig(fqdn="host", test_iface="nic")
DPDK_NIC = replace(KERNEL_NIC, testpmd_path="/opt/testpmd", test_iface_dpdk_driv="vfio-pci", test_iface_addr="0000:51:00.0")
STAYS = 'print("io packet forwarding\\nPress enter to exit")\nsys.stdin.read()'


@pytest.mark.parametrize(
    ("config", "queues", "expected"),
    [
        (
            KERNEL_NIC,
            1,
            (
                "dpdk-testpmd -v --lcores=0@(0-1),1@(0-1) --no-telemetry --no-pci --no-huge -m 256 --no-shconf "
                "--vdev=net_af_packet0,iface=nic,qpairs=1 --vdev=net_vhost0,iface=/run/s,queues=1,client=1 "
                "-- --forward-mode=io --auto-start --rxq=1 --txq=1 --no-numa --total-num-mbufs=8192"
            ),
        ),
        (
            KERNEL_NIC,
            4,
            (
                "dpdk-testpmd -v --lcores=0@(0-1),1@(0-1) --no-telemetry --no-pci --no-huge -m 352 --no-shconf "
                "--vdev=net_af_packet0,iface=nic,qpairs=4 --vdev=net_vhost0,iface=/run/s,queues=4,client=1 "
                "-- --forward-mode=io --auto-start --rxq=4 --txq=4 --no-numa --total-num-mbufs=32768"
            ),
        ),
        (
            DPDK_NIC,
            2,
            (
                "/opt/testpmd -v --lcores=0@(0-1),1@(0-1) --no-telemetry --in-memory -a 0000:51:00.0 "
                "--vdev=net_vhost0,iface=/run/s,queues=2,client=1 "
                "-- --forward-mode=io --auto-start --rxq=2 --txq=2 --total-num-mbufs=16384"
            ),
        ),
    ],
)
def test_command_line_of_testpmd(config: HostConfig, queues: int, expected: str) -> None:
    assert " ".join(vhost_user.testpmd(config, config.test_iface_addr or "nic", "/run/s", queues, "0-1")) == expected


@pytest.mark.parametrize(("iface", "socket"), [("a,b", "/s"), ("nic", "/run/a,client=0"), ("a[0]", "/s"), ("nic", "/a b")])
def test_a_name_that_dpdk_would_take_apart_is_refused(iface: str, socket: str) -> None:
    with pytest.raises(TestbedError, match="DPDK takes nothing named"):
        vhost_user.testpmd(KERNEL_NIC, iface, socket, 1, "0")


@pytest.mark.parametrize(
    ("machine", "queues", "expected"),
    [
        (Machine("pc", "tcg"), None, "vectors=0"),
        (Machine("pc", "tcg"), 2, "vectors=0"),
        (Machine("pc", "kvm"), None, None),
        (Machine("pc", "kvm"), 2, "vectors=6"),
        (Machine("microvm", "tcg"), 2, None),
    ],
)
def test_only_where_qemu_would_die_of_it_there_is_no_msi_x(machine: Machine, queues: int | None, expected: str | None) -> None:
    assert KIND.nic
    part = KIND.nic(KERNEL_NIC, GuestConfig(test_iface_mac="52:54:00:fa:00:60"), InterfaceOptions(queues=queues))
    device = part.render(machine)[-1]
    assert [each for each in device.split(",") if each.startswith("vectors")] == ([expected] if expected else [])


def flags(host: Host) -> list[str]:
    shown = subprocess.run(["ip", "-n", str(host.config.netns), "-json", "link", "show", "nic"], check=True, capture_output=True)
    return sorted(json.loads(shown.stdout)[0]["flags"])


def run(host: Host) -> None:
    KIND.set_up(host, True)
    KIND.attach(host.machine(1), OPTIONS)


def test_the_switch_lives_as_long_as_its_scope_and_the_nic_takes_all_frames(
    make_host: Callable[..., Host], program: Callable[[str], str]
) -> None:
    host = make_host(testpmd_path=program(STAYS), scheduling_switch="nice:7")
    before, socket = flags(host), Path(host.state_file("vhost.sock"))
    os.mknod(socket, 0o140600)
    with host.journal.scope():
        run(host)
        assert not socket.exists()
        socket.touch()
        pid = host.session("testpmd").pid()
        assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[16] == "7"
        assert "PROMISC" in flags(host)
        KIND.check(host.machine(1))
    assert flags(host) == before and not Path(f"/proc/{pid}").exists() and not socket.exists()


def test_a_nic_that_was_promiscuous_stays_so(make_host: Callable[..., Host], program: Callable[[str], str]) -> None:
    host = make_host(testpmd_path=program(STAYS))
    subprocess.run(["ip", "-n", str(host.config.netns), "link", "set", "nic", "promisc", "on", "up"], check=True)
    before = flags(host)
    with host.journal.scope():
        run(host)
    assert flags(host) == before and "PROMISC" in before


def test_the_switch_that_is_started_for_the_next_guest_replaces_one_that_was_left(
    make_host: Callable[..., Host], program: Callable[[str], str]
) -> None:
    host = make_host(testpmd_path=program(STAYS))
    run(host)
    left = host.session("testpmd").pid()
    host.journal.forget()
    with host.journal.scope():
        run(host)
        assert host.session("testpmd").pid() != left and not Path(f"/proc/{left}").exists()
    host.links.end_promiscuous("nic")


def test_what_a_run_left_that_was_killed_is_undone_by_another_process(
    make_host: Callable[..., Host], program: Callable[[str], str], tmp_path: Path
) -> None:
    path = tmp_path / "journal"
    host, later = (make_host(testpmd_path=program(STAYS)) for _ in range(2))
    host.journal = Journal(lambda change: undo(host, change), path)
    before = flags(host)
    run(host)
    pid, socket = host.session("testpmd").pid(), Path(host.state_file("vhost.sock"))
    socket.touch()
    said: list[str] = []
    read_journal(path).journal(lambda change: undo(later, change)).undo(say=said.append)
    assert said == [
        "host: session testpmd: ended", f"host: file {socket}: removed", "host: promiscuous nic: takes only its own frames again",
        "host: up nic: taken down again",
    ]  # fmt: skip
    assert flags(host) == before and not Path(f"/proc/{pid}").exists() and not socket.exists()


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('sys.exit("EAL: Cannot init memory")', "host: testpmd ended with exit code 1:\nEAL: Cannot init memory"),
        ('print("EAL: probing"); time.sleep(60)', "host: testpmd: to begin forwarding: not within 1 s:\nEAL: probing"),
    ],
)
def test_a_switch_that_does_not_get_ready_is_named_with_its_last_words_and_ended(
    make_host: Callable[..., Host], program: Callable[[str], str], monkeypatch: pytest.MonkeyPatch, lines: str, reason: str
) -> None:
    monkeypatch.setattr(vhost_user, "_START_TIMEOUT", 1.0)
    host = make_host(testpmd_path=program(lines))
    with pytest.raises(TestbedError) as raised, host.journal.scope():
        run(host)
    assert str(raised.value) == reason
    assert not host.session("testpmd").is_running() and host.journal.standing == ()


def test_a_switch_that_ended_or_hangs_is_named(make_host: Callable[..., Host], program: Callable[[str], str]) -> None:
    host = make_host(testpmd_path=program(STAYS))
    with host.journal.scope():
        run(host)
        session = host.session("testpmd")
        host.run(["kill", "-STOP", str(session.pid())])
        with pytest.raises(TestbedError, match="(?s)testpmd does not work: its process is stopped:.*Press enter"):
            KIND.check(host.machine(1))
        host.run(["kill", "-KILL", str(session.pid())])
        session.wait(5)
        with pytest.raises(TestbedError, match="(?s)host: testpmd ended with exit code 137:.*Press enter"):
            KIND.check(host.machine(1))


def test_a_nic_of_dpdk_without_an_address_is_refused_before_anything_is_touched(make_host: Callable[..., Host]) -> None:
    host = make_host(test_iface_dpdk_driv="vfio-pci")
    before = flags(host)
    with pytest.raises(TestbedError, match="host: test_iface_addr is missing: vhost-user with test_iface_dpdk_driv needs it"):
        KIND.set_up(host, True)
    assert flags(host) == before and host.journal.standing == ()
