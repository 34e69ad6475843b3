"""Programs, files, modules, device files and huge pages of a machine; nothing is made where something is missing."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from fake_nics import hugepages
from preflight_bed import Bed

from autotest.preflight.machine import (
    DeviceFile,
    Files,
    HugepageMemory,
    Modules,
    Programs,
    QueuesOfGuest,
    WayToSockets,
)
from autotest.preflight.requirement import Status
from autotest.preflight.survey import Survey
from autotest.remote.transport import Result, Transport
from autotest.servers.hugepages import Hugepages


def test_missing_programs_are_named_and_those_with_a_path_must_be_executable(bed: Bed, tmp_path: Path) -> None:
    assert bed.look(Programs("host", ("ip", "tmux"), "the host")).status is Status.PASS
    script = tmp_path / "vmux"
    script.write_text("#!/bin/sh\n")
    finding = bed.look(Programs("host", ("ip", "no-such-program", str(script)), "interface vmux-emu"))
    assert finding.status is Status.FAIL and finding.detail == f"there is no no-such-program, {script}"
    script.chmod(0o755)
    assert bed.look(Programs("host", (str(script),), "interface vmux-emu")).status is Status.PASS


class Way:
    """A transport of this machine that says something else of itself; there is a program less."""

    def __init__(self, transport: Transport, is_local: bool, is_root: bool, missing: str) -> None:
        self._transport, self.is_local, self.is_root, self._missing = transport, is_local, is_root, missing

    def run(self, command: list[str], **options: Any) -> Result:
        return self._transport.run([word.replace(self._missing, "no-such-program") for word in command], **options)


@pytest.mark.parametrize(
    ("is_local", "is_root", "is_needed"), [(True, True, False), (True, False, True), (False, True, True), (False, False, True)]
)
def test_socat_is_only_asked_for_where_it_is_the_way_to_qemus_socket(
    bed: Bed, is_local: bool, is_root: bool, is_needed: bool
) -> None:
    for missing, status in (("nothing", Status.PASS), ("socat", Status.FAIL if is_needed else Status.PASS)):
        servers = bed.servers
        way = Way(servers.host.transport, is_local, is_root, missing)
        servers.host.__dict__["transport"] = way
        finding = WayToSockets("host").look(Survey(servers))
        servers.host.__dict__["transport"] = way._transport
        assert finding.status is status and bool(finding.remedy) is (status is Status.FAIL)


def test_missing_files_are_named_with_their_keys(bed: Bed, tmp_path: Path) -> None:
    there, gone = tmp_path / "root.img", str(tmp_path / "a b")
    finding = bed.look(Files("host", (("root_disk_file", str(there)), ("kernel", gone)), "the guest"))
    assert finding.status is Status.FAIL and finding.detail == f"there is no kernel {gone}"
    assert (
        bed.look(Files("host", (("root_disk_file", str(there)), ("fsdevs home", str(tmp_path))), "the guest")).status
        is Status.PASS
    )


def test_a_module_that_the_kernel_does_not_have_is_named(bed: Bed) -> None:
    finding = bed.look(Modules("host", ("tun", "no_such_module", "bridge")))
    assert finding.status is Status.FAIL and finding.detail == "there is no no_such_module"
    assert bed.look(Modules("host", ("tun", "bridge"))).status is Status.PASS


def test_a_device_file_must_open(bed: Bed) -> None:
    assert bed.look(DeviceFile("host", "/dev/net/tun", "interface bridge")).status is Status.PASS


def test_a_missing_device_file_is_not_made_by_looking_at_it(bed: Bed, tmp_path: Path) -> None:
    path = tmp_path / "vhost-net"
    finding = bed.look(DeviceFile("host", str(path), "vhost"))
    assert finding.status is Status.FAIL and "vhost needs it" in finding.detail and not path.exists()


@pytest.mark.skipif(os.path.exists("/dev/vhost-net"), reason="this machine has vhost in the kernel")
def test_vhost_on_a_kernel_without_it_says_so(bed: Bed) -> None:
    finding = bed.look(DeviceFile("host", "/dev/vhost-net", "vhost"))
    assert finding.status is Status.FAIL and "vhost_net" in finding.remedy
    assert not os.path.exists("/dev/vhost-net")


def test_a_device_file_without_a_driver_behind_it_is_no_device(bed: Bed, tmp_path: Path) -> None:
    path = Path(f"/dev/at-preflight-{os.getpid()}")
    os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(10, 254))
    try:
        assert bed.look(DeviceFile("host", str(path), "vhost")).status is Status.FAIL
    finally:
        path.unlink()


@pytest.mark.parametrize(("free", "needed", "status"), [(32, 64, "pass"), (0, 2, "pass"), (0, 1 << 40, "fail")])
def test_huge_pages_are_there_or_there_is_memory_for_them(bed: Bed, tmp_path: Path, free: int, needed: int, status: str) -> None:
    hugepages(tmp_path / "kernel", free=free)
    servers = bed.servers
    servers.host.__dict__["hugepages"] = Hugepages(servers.host.transport, root=str(tmp_path / "kernel"))
    finding = HugepageMemory("host", needed, "the guest").look(Survey(servers))
    assert finding.status == status, finding
    if status == "fail":
        assert "the guest needs" in finding.detail and "hugepages=" in finding.remedy


def test_huge_pages_of_each_node_are_needed_on_all_of_them(bed: Bed, tmp_path: Path) -> None:
    hugepages(tmp_path / "kernel", nodes=2, free=48)  # of 2 MiB each
    servers = bed.servers
    servers.host.__dict__["hugepages"] = Hugepages(servers.host.transport, root=str(tmp_path / "kernel"))
    assert "are reserved" not in HugepageMemory("host", 96, "MoonGen").look(Survey(servers)).detail
    assert (
        "48 more are reserved when MoonGen needs them" in HugepageMemory("host", 96, "MoonGen", True).look(Survey(servers)).detail
    )


def test_more_queues_than_the_guest_has_cpus_are_not_all_used(bed: Bed) -> None:
    assert bed.look(QueuesOfGuest("host", 2, 2)).status is Status.PASS
    finding = bed.look(QueuesOfGuest("host", 4, 1))
    assert finding.status is Status.FAIL and "4 pairs, but the guest has 1 vCPU" in finding.detail
