"""CPUs that are configured for threads: there, and on the NIC's NUMA node."""

from __future__ import annotations

import os

import pytest
from hostile import FakeMachine
from preflight_bed import Bed

from autotest.preflight.cpus import NumaNode, PlacementCpus, RealTime
from autotest.preflight.requirement import Finding
from autotest.preflight.survey import Survey
from autotest.servers.facts import MachineFacts, Nic

ROLES = ("vcpus", "qemu")


def test_cpus_that_are_not_there_are_named_with_their_key_and_those_that_are(bed: Bed) -> None:
    there = sorted(os.sched_getaffinity(0))
    bed.change(host={"cpus_vcpus": (there[0], 4000), "cpus_vhost": (5000,)})
    found = bed.look(PlacementCpus("host", ROLES))
    assert found.status == "fail" and found.detail == "cpus_vcpus has CPU 4000, which is not there"
    assert str(there[-1]) in found.remedy
    bed.change(host={"cpus_vcpus": (there[0],)})
    found = bed.look(PlacementCpus("host", ROLES))  # vhost is no role of this guest
    assert found.status == "pass" and found.detail == f"vcpus on {there[0]}"


def numa(bed: Bed, nodes: str, node: int | None) -> Finding:
    servers = bed.servers
    servers.host.__dict__["transport"] = FakeMachine(lambda command: nodes)
    survey = Survey(servers)
    survey.once(("facts", "host"), lambda: MachineFacts(nic=Nic(numa_node=node)))
    return NumaNode("host", ROLES).look(survey)


TWO = "0 0-3,8-11\n1 4-7,12-15\n2 \n"


@pytest.mark.parametrize(
    ("cpus", "nodes", "node", "status"),
    [
        ({}, "0 0-3\n", 0, "pass"),
        ({}, "", None, "pass"),
        ({}, TWO, None, "pass"),
        ({}, TWO, 1, "warn"),
        ({"cpus_vcpus": (4, 5), "cpus_qemu": (12,)}, TWO, 1, "pass"),
        ({"cpus_vcpus": (4, 5)}, TWO, 1, "warn"),
        ({"cpus_vcpus": (4, 5), "cpus_qemu": (3,)}, TWO, 1, "warn"),
    ],
)
def test_threads_belong_on_the_node_of_the_nic(
    bed: Bed, cpus: dict[str, tuple[int, ...]], nodes: str, node: int | None, status: str
) -> None:
    bed.change(host=cpus)
    found = numa(bed, nodes, node)
    assert found.status == status
    if status == "warn":
        assert "node 1" in found.detail and "4-7,12-15" in found.remedy


def test_the_key_with_cpus_of_another_node_is_named(bed: Bed) -> None:
    bed.change(host={"cpus_vcpus": (4, 5), "cpus_qemu": (3, 12)})
    assert "cpus_qemu 3:" in numa(bed, TWO, 1).detail


def test_real_time_scheduling_says_what_it_does_to_the_numbers(bed: Bed) -> None:
    assert bed.look(RealTime("host", ROLES)).status == "pass"
    bed.change(host={"scheduling_vcpus": "fifo:50"})
    found = bed.look(RealTime("host", ROLES))
    assert found.status == "warn" and found.detail.startswith("scheduling_vcpus: ")
