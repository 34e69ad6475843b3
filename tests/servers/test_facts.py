"""What a machine is: read from this one, and understood from what others print."""

from __future__ import annotations

import hashlib
import json
import os
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.config.testbed import ServerConfig
from autotest.remote.local import LocalTransport
from autotest.servers.facts import MachineFacts, Nic, read_facts, understand_facts
from autotest.servers.server import Server

XEON = """\
==> hostname
loadgen-1

==> machine-id
5f3d1c0e9b7a4d2c8e6f0a1b2c3d4e5f

==> kernel
5.10.0-28-amd64

==> kernel-version
#1 SMP Debian 5.10.209-2 (2024-01-31)

==> architecture
x86_64

==> arguments
BOOT_IMAGE=/vmlinuz root=UUID=7c3e ro quiet intel_iommu=on isolcpus=2-11 nohz_full=2-11 -- secret=1

==> cpuinfo
processor\t: 0
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
model name\t: Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz
stepping\t: 4
microcode\t: 0x2007006
cpu MHz\t\t: 3299.998
bugs\t\t: cpu_meltdown spectre_v1 spectre_v2
power management:

==> meminfo
MemTotal:       97419756 kB

==> cpus
0-23

==> smt
1

==> governors
performance
powersave

==> no_turbo
1

==> boost

==> nodes
0-1

==> thp
always [madvise] never

==> hugepages 1048576kB
8
6

==> hugepages 2048kB
0
0

==> mitigation mds
Mitigation: Clear CPU buffers; SMT vulnerable

==> mitigation spectre_v2
Mitigation: Retpolines, IBPB: conditional, IBRS_FW, STIBP: conditional, RSB filling

==> nic-path
/sys/devices/pci0000:50/0000:50:02.0/0000:51:00.0

==> nic-driver
../../../../bus/pci/drivers/i40e

==> nic-vendor
0x8086

==> nic-device
0x1572

==> nic-numa_node
1

==> nic-speed
10000
"""


@pytest.fixture
def here() -> Server:
    return Server("host", ServerConfig(fqdn="localhost", test_iface="lo"))


def test_a_server_with_two_sockets_is_understood() -> None:
    found = understand_facts(XEON, "enp81s0f0")
    assert found == MachineFacts(
        hostname="loadgen-1",
        machine=hashlib.sha256(b"5f3d1c0e9b7a4d2c8e6f0a1b2c3d4e5f").hexdigest()[:12],
        architecture="x86_64",
        kernel="5.10.0-28-amd64",
        kernel_version="#1 SMP Debian 5.10.209-2 (2024-01-31)",
        kernel_arguments="BOOT_IMAGE=/vmlinuz root=UUID=7c3e ro quiet intel_iommu=on isolcpus=2-11 nohz_full=2-11",
        cpu="Intel(R) Xeon(R) Gold 6126 CPU @ 2.60GHz",
        cpus="0-23",
        microcode="0x2007006",
        smt=True,
        governor="performance,powersave",
        turbo=False,
        numa_nodes="0-1",
        memory_kib=97419756,
        hugepages={"1048576kB": {"total": 8, "free": 6}, "2048kB": {"total": 0, "free": 0}},
        transparent_hugepages="madvise",
        mitigations={
            "mds": "Mitigation: Clear CPU buffers; SMT vulnerable",
            "spectre_v2": "Mitigation: Retpolines, IBPB: conditional, IBRS_FW, STIBP: conditional, RSB filling",
        },
        nic=Nic("enp81s0f0", "0000:51:00.0", "8086:1572", "i40e", 1, 10000),
    )
    assert found.telling_arguments == ["intel_iommu=on", "isolcpus=2-11", "nohz_full=2-11"]


def test_the_machine_id_itself_is_never_told() -> None:
    found = understand_facts(XEON)
    assert found.machine and "5f3d1c0e" not in json.dumps(found.record())
    assert understand_facts(XEON.replace("5f3d1c0e", "5f3d1c0f")).machine != found.machine


@pytest.mark.parametrize(
    ("no_turbo", "boost", "turbo"),
    [("1", "", False), ("0", "", True), ("", "1", True), ("", "0", False), ("", "", None), ("?", "", None)],
)
def test_turbo_is_told_by_either_driver(no_turbo: str, boost: str, turbo: bool | None) -> None:
    assert understand_facts(f"==> no_turbo\n{no_turbo}\n\n==> boost\n{boost}\n").turbo is turbo


def test_an_arm_cpu_without_a_name_has_its_numbers() -> None:
    text = "==> cpuinfo\nprocessor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\n"
    assert understand_facts(text + "CPU part\t: 0xd0c\nCPU revision\t: 1\n").cpu == "0x41 0x3 0xd0c 1"


def test_a_nic_whose_node_or_speed_is_not_known_has_none() -> None:
    found = understand_facts("==> nic-numa_node\n-1\n\n==> nic-speed\n-1\n").nic
    assert (found.numa_node, found.speed, found.pci_address, found.model) == (None, None, None, None)


def test_a_machine_that_tells_nothing_has_no_facts_and_its_record_is_json() -> None:
    assert understand_facts("") == MachineFacts()
    record = MachineFacts().record()
    assert json.loads(json.dumps(record))["mitigations"] == {} and record["nic"]["numa node"] is None


@given(st.text() | st.lists(st.sampled_from([*XEON.splitlines(), "==> ", "==> hugepages ", "\0"])).map("\n".join))
def test_whatever_a_machine_prints_is_understood_somehow(text: str) -> None:
    json.dumps(understand_facts(text).record())


def test_this_machine_is_what_it_says_itself(here: Server) -> None:
    start = time.monotonic()
    found = read_facts(here)
    assert time.monotonic() - start < 2
    assert found.kernel == os.uname().release and found.hostname == os.uname().nodename
    assert found.architecture == os.uname().machine and found.cpu and found.cpus
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1024
    assert found.memory_kib == pytest.approx(memory, rel=0.01)
    assert found.nic.interface == "lo" and found.nic.pci_address is None and found.nic.numa_node is None
    assert set(found.mitigations) == set(os.listdir("/sys/devices/system/cpu/vulnerabilities"))


def test_in_a_namespace_the_nic_is_that_of_the_namespace(netns: str) -> None:
    here = LocalTransport("here")
    here.run(["ip", "-n", netns, "link", "add", "nic", "type", "veth", "peer", "name", "peer"])
    for name in ("nic", "peer"):
        here.run(["ip", "-n", netns, "link", "set", name, "up"])
    found = read_facts(Server("host", ServerConfig(fqdn="localhost", netns=netns, test_iface="nic")))
    assert found.nic.speed == 10000 and found.kernel == os.uname().release
