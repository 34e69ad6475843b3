"""Several guests: memory, CPUs and NICs for all of them, each with the largest number that there is enough for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fake_kernel import FakeKernel
from fake_nics import hugepages
from hostile import FakeMachine
from preflight_bed import Bed

from autotest.interfaces import INTERFACE_KINDS, InterfaceOptions
from autotest.preflight.cpus import GuestCpus
from autotest.preflight.machine import (
    GuestMemory,
    HugepageMemory,
    Modules,
    Programs,
)
from autotest.preflight.needs import needs_of_guest
from autotest.preflight.nics import FurtherNic, GivenAwayNic, IommuGroup
from autotest.preflight.requirement import Finding, Requirement, Status
from autotest.preflight.survey import Survey
from autotest.servers.guest import GuestSettings
from autotest.servers.hugepages import Hugepages

FIRST, SECOND, THIRD, DISK = "0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"
SECOND_MAC, THIRD_MAC = "52:54:00:00:02:00", "52:54:00:00:03:00"


def needs(bed: Bed, interface: str, count: int) -> list[Requirement]:
    settings = GuestSettings("pcvm", INTERFACE_KINDS[interface], "", InterfaceOptions())
    return list(needs_of_guest(bed.testbed, settings, "default", count=count))


def new(bed: Bed, interface: str, count: int) -> list[Requirement]:
    """What so many guests need that one does not."""
    one = needs(bed, interface, 1)
    return [each for each in needs(bed, interface, count) if each not in one]


def failing(finding: Finding) -> str:
    assert finding.status is Status.FAIL and finding.remedy, finding
    return finding.detail


def with_memory(bed: Bed, requirement: Requirement, kibibytes: int, running: bool = False) -> Finding:
    """What is found on a host with so much memory, on which a guest may run."""
    servers = bed.servers
    if running:
        servers.host.guest_is_running = lambda: True  # type: ignore[method-assign]
    survey = Survey(servers)
    survey.once(("memory", "host"), lambda: f"MemTotal: 99999999 kB\nMemAvailable:   {kibibytes} kB\nSwapTotal: 0 kB\n")
    return requirement.look(survey)


# -- what is asked for -------------------------------------------------------------------------------------


def test_several_guests_need_memory_and_cpus_and_one_needs_nothing_new(bed: Bed) -> None:
    bed.change(guest={"memory": 512, "vcpus": 2})
    assert new(bed, "bridge", 4) == [GuestCpus("host", 4, 2), GuestMemory("host", 4, 512)]
    assert not any(isinstance(each, (GuestCpus, GuestMemory, FurtherNic)) for each in needs(bed, "bridge", 1))


def test_memory_in_huge_pages_is_asked_for_as_such_with_that_of_each_process(bed: Bed) -> None:
    bed.change(guest={"memory": 512, "hugepages": True})
    assert HugepageMemory("host", 512, "the guest with bridge") in needs(bed, "bridge", 1)
    assert new(bed, "bridge", 3) == [HugepageMemory("host", 512, "3 guests with bridge", guests=3), GuestCpus("host", 3, 1)]
    bed.change(host={"test_iface_dpdk_driv": "vfio-pci", "test_iface_addr": FIRST})
    assert HugepageMemory("host", 1024, "3 guests with vhost-user", guests=3) in new(bed, "vhost-user", 3)


def test_each_further_guest_needs_a_nic_and_a_group_of_its_own(bed: Bed) -> None:
    nics = ((SECOND, SECOND_MAC), (THIRD, THIRD_MAC))
    bed.change(host={"test_iface_addr": FIRST, "test_iface_vfio_driv": "vfio-pci", "guest_nics": nics})
    assert [each for each in new(bed, "vfio", 3) if isinstance(each, (FurtherNic, IommuGroup))] == [
        FurtherNic("host", SECOND, SECOND_MAC, "vfio-pci"),
        IommuGroup("host", SECOND, others=(FIRST,)),
        FurtherNic("host", THIRD, THIRD_MAC, "vfio-pci"),
        IommuGroup("host", THIRD, others=(FIRST, SECOND)),
    ]
    assert [each.address for each in new(bed, "vfio", 2) if isinstance(each, FurtherNic)] == [SECOND]
    assert not any(isinstance(each, FurtherNic) for each in [*needs(bed, "bridge", 3), *needs(bed, "vhost-user", 3)])
    bed.change(host={"test_iface_dpdk_driv": "igb_uio"})
    assert FurtherNic("host", THIRD, THIRD_MAC, "igb_uio") in new(bed, "vhost-user", 3)
    assert not any(isinstance(each, IommuGroup) for each in new(bed, "vhost-user", 3))


def test_virtual_functions_are_all_of_the_one_nic(bed: Bed) -> None:
    bed.change(
        host={
            "test_iface_addr": FIRST,
            "test_iface_vfio_driv": "vfio-pci",
            "test_iface_vfs": 4,
            "guest_nics": ((SECOND, SECOND_MAC),),
        }
    )
    assert new(bed, "vfio", 4) == [GuestCpus("host", 4, 1), GuestMemory("host", 4, 32)]
    assert GivenAwayNic("host", FIRST, "vfio-pci", 4) in needs(bed, "vfio", 4)


def test_guests_that_share_a_nic_need_what_makes_a_link_on_it_for_each(bed: Bed) -> None:
    assert Modules("host", ("macvlan",)) in new(bed, "vhost-user", 2)
    assert bed.look(Modules("host", ("macvlan",))).status is Status.PASS
    bed.change(host={"test_iface_addr": FIRST, "test_iface_dpdk_driv": "vfio-pci", "guest_nics": ((SECOND, SECOND_MAC),)})
    for interface, count in (("vhost-user", 1), ("vhost-user", 2), ("bridge", 2), ("macvtap", 2)):
        found = [module for each in needs(bed, interface, count) if isinstance(each, Modules) for module in each.modules]
        assert "macvlan" not in found


@pytest.mark.parametrize(
    ("interface", "has_tap"),
    [("bridge", True), ("bridge-e1000", True), ("vmux-emu", True), ("macvtap", False), ("vhost-user", False)],
)
def test_what_brings_frames_to_a_tap_alone_is_a_program_of_roots(bed: Bed, interface: str, has_tap: bool) -> None:
    bed.change(host={"vmux_path": "/vmux"})
    found = [each for each in needs(bed, interface, 1) if isinstance(each, Programs) and "bridge" in each.programs]
    assert found == [Programs("host", ("bridge",), "the guest's tap", as_root=True)] * has_tap
    assert all(bed.look(each).status is Status.PASS for each in found)


# -- memory ------------------------------------------------------------------------------------------------


def test_guests_that_fit_into_the_memory_pass_and_more_are_told_how_many_do(bed: Bed) -> None:
    assert with_memory(bed, GuestMemory("host", 4, 512), 4 * 512 * 1024).detail == (
        "4 guests with 512 MiB each need 2048 MiB, 2048 MiB are available"
    )
    assert failing(with_memory(bed, GuestMemory("host", 4, 512), 4 * 512 * 1024 - 1)) == (
        "4 guests with 512 MiB each need 2048 MiB, but 2047 MiB are available: enough for 3 guests"
    )
    assert failing(with_memory(bed, GuestMemory("host", 2, 512), 513 * 1024)).endswith("enough for 1 guest")


def test_the_memory_of_a_guest_that_is_ended_before_a_run_may_be_enough(bed: Bed) -> None:
    found = with_memory(bed, GuestMemory("host", 4, 512), 1024 * 1024, running=True)
    assert found.status is Status.WARN and "enough for 2 guests; perhaps a guest that is running has it" in found.detail
    assert with_memory(bed, GuestMemory("host", 2, 512), 1024 * 1024, running=True).status is Status.PASS


def test_a_host_that_does_not_tell_of_its_memory_is_not_trusted(bed: Bed) -> None:
    servers = bed.servers
    servers.host.__dict__["transport"] = FakeMachine(lambda command: "MemAvailable: plenty\n")
    assert "does not tell" in failing(GuestMemory("host", 2, 512).look(Survey(servers)))


def test_this_machine_tells_of_its_memory(bed: Bed) -> None:
    assert bed.look(GuestMemory("host", 2, 32)).status is Status.PASS
    assert "enough for" in failing(bed.look(GuestMemory("host", 1000, 1 << 24)))


@pytest.mark.parametrize(("free", "kibibytes", "enough"), [(32, 0, 2), (32, 64 * 1024, 4), (0, 63 * 1024, 1), (0, 0, 0)])
def test_huge_pages_of_several_guests_are_free_or_can_be_made(
    bed: Bed, tmp_path: Path, free: int, kibibytes: int, enough: int
) -> None:
    hugepages(tmp_path / "kernel", free=free)  # of 2 MiB each
    for guests in (enough, enough + 1):
        servers = bed.servers
        servers.host.__dict__["hugepages"] = Hugepages(servers.host.transport, root=str(tmp_path / "kernel"))
        survey = Survey(servers)
        survey.once(("memory", "host"), lambda: f"MemAvailable: {kibibytes} kB\n")
        found = HugepageMemory("host", 32, f"{guests} guests", guests=guests).look(survey)
        assert found.status == ("pass" if guests == enough else "fail")
        if guests > max(enough, 1):
            assert f"enough for {enough} guest" in failing(found) and found.remedy.endswith("or fewer guests")


# -- CPUs --------------------------------------------------------------------------------------------------


def test_guests_get_a_cpu_for_each_vcpu_or_share_them_as_configured(bed: Bed) -> None:
    servers = bed.servers
    survey = Survey(servers)
    survey.once(("CPUs", "host"), lambda: tuple(range(8)))
    assert GuestCpus("host", 4, 2).look(survey).status is Status.PASS
    found = GuestCpus("host", 5, 2).look(survey)
    assert failing(found) == (
        "5 guests have 10 vCPUs, and the CPUs 0-7 with cpu_overcommit = 1 have room for 8: enough for 4 guests"
    )
    assert "cpu_overcommit = 2 in [host]" in found.remedy
    assert failing(GuestCpus("host", 2, 5).look(survey)).endswith("enough for 1 guest")


def test_cpus_that_are_configured_for_vcpus_are_those_that_count(bed: Bed) -> None:
    bed.change(host={"cpus_vcpus": (2, 3, 4), "cpu_overcommit": 2})
    assert bed.look(GuestCpus("host", 6, 1)).status is Status.PASS
    assert failing(bed.look(GuestCpus("host", 7, 1))) == (
        "7 guests have 7 vCPUs, and cpus_vcpus 2-4 with cpu_overcommit = 2 have room for 6: enough for 6 guests"
    )


def test_the_cpus_of_this_machine_are_asked_for(bed: Bed) -> None:
    there = len(os.sched_getaffinity(0))
    assert bed.look(GuestCpus("host", there, 1)).status is Status.PASS
    assert failing(bed.look(GuestCpus("host", there + 1, 1))).endswith(f"enough for {there} guest{'s' * (there != 1)}")


# -- NICs --------------------------------------------------------------------------------------------------


@pytest.fixture
def nics(bed: Bed, kernel: FakeKernel) -> FakeKernel:
    kernel.device(SECOND, group=18, driver="e1000e")
    kernel.device(THIRD, group=18, driver="e1000e")
    return kernel


def test_a_further_nic_is_there_and_can_be_bound(bed: Bed, nics: FakeKernel) -> None:
    assert "bound to vfio-pci for the test" in bed.look(FurtherNic("host", SECOND, SECOND_MAC, "vfio-pci")).detail
    nics.register("vfio-pci")
    nics._unbind(SECOND)
    nics.attach(SECOND, "vfio-pci")
    assert bed.look(FurtherNic("host", SECOND, SECOND_MAC, "vfio-pci")).status is Status.PASS


@pytest.mark.parametrize(
    ("address", "mac", "says"),
    [
        ("0000:07:00.0", SECOND_MAC, "there is no PCI device 0000:07:00.0"),
        (SECOND, THIRD_MAC, f"{SECOND} is not the NIC with {THIRD_MAC}, it is "),
        (DISK, SECOND_MAC, "is no network device"),
    ],
)
def test_a_further_nic_that_is_another_one_is_named(bed: Bed, nics: FakeKernel, address: str, mac: str, says: str) -> None:
    found = {str(each): finding for each, finding in looked(bed, FurtherNic("host", address, mac, "vfio-pci"))}
    (finding,) = found.values()
    assert finding.status is Status.FAIL and says in finding.detail


def looked(bed: Bed, requirement: Requirement) -> list[tuple[Requirement, Finding]]:
    from autotest.preflight.preflight import look

    found = look(bed.servers, {"set-up": [requirement]})
    return [(each, finding) for each, finding in found.findings.items() if each == requirement]


def test_a_further_nic_that_a_process_or_the_machine_itself_uses_is_left_to_it(bed: Bed, nics: FakeKernel) -> None:
    nics.register("vfio-pci")
    nics._unbind(SECOND)
    nics.attach(SECOND, "vfio-pci")
    nics.process(4711, "MoonGen", "/dev/vfio/18")
    assert "is in use: process 4711, MoonGen" in failing(bed.look(FurtherNic("host", SECOND, SECOND_MAC, "vfio-pci")))


def test_a_group_of_the_iommu_is_given_to_one_guest_only(bed: Bed, nics: FakeKernel) -> None:
    nics.register("vfio-pci")
    for address in (SECOND, THIRD):
        nics._unbind(address)
        nics.attach(address, "vfio-pci")
    assert bed.look(IommuGroup("host", THIRD, others=(FIRST,))).status is Status.PASS
    found = bed.look(IommuGroup("host", THIRD, others=(FIRST, SECOND)))
    assert failing(found) == f"{THIRD} is in IOMMU group 18 with {SECOND} of another guest: only one can have the group"
    assert "guest_nics" in found.remedy
