"""Looking at machines: real links in network namespaces, PCI devices of a kernel that exists only in the test, bad answers."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import EMPTY, FakeKernel

from autotest.config.testbed import ServerConfig
from autotest.discovery.looking import look, look_at, understand
from autotest.discovery.machine import Machine, Nic
from autotest.errors import ConnectError, TestbedError
from autotest.network import pci_there
from autotest.network.pci_device import NotLinux
from autotest.remote.local import LocalTransport
from autotest.servers.server import Server


class Inside(LocalTransport):
    """A machine that is nothing but a network namespace."""

    @property
    def outside(self) -> LocalTransport:
        return self


@pytest.fixture(scope="module")
def namespace(shared_netns: str) -> Iterator[str]:
    """The links of a machine with an admin NIC, a LAN bridge, a bond's port, and NICs that nobody needs."""
    peer = f"{shared_netns}-peer"
    commands = [
        ["ip", "netns", "add", peer],
        *(["ip", "-n", shared_netns, "link", "add", name, "type", "veth", "peer", "name", name, "netns", peer] for name in (
            "eno1", "eno2", "enp1s0f0", "enp1s0f1", "enp2s0", "enp3s0", "enp4s0")),
        ["ip", "-n", shared_netns, "link", "set", "enp1s0f0", "address", "b4:96:91:00:00:01"],
        *(["ip", "-n", each, "link", "set", name, "up"] for each in (shared_netns, peer) for name in (
            "eno1", "eno2", "enp1s0f0", "enp2s0", "enp3s0", "enp4s0")),
        ["ip", "-n", shared_netns, "address", "add", "10.0.7.5/24", "dev", "eno1"],
        ["ip", "-n", shared_netns, "route", "add", "default", "via", "10.0.7.1"],
        ["ip", "-n", shared_netns, "route", "add", "192.168.56.0/22", "via", "10.0.7.2"],
        ["ip", "-n", shared_netns, "address", "add", "10.9.0.1/16", "dev", "enp2s0"],
        ["ip", "-n", shared_netns, "link", "add", "br-lan", "type", "bridge"],
        ["ip", "-n", shared_netns, "link", "set", "eno2", "master", "br-lan"],
        ["ip", "-n", shared_netns, "address", "add", "10.8.0.1/24", "dev", "br-lan"],
        ["ip", "-n", shared_netns, "link", "add", "br-test", "type", "bridge"],
        ["ip", "-n", shared_netns, "link", "set", "enp3s0", "master", "br-test"],
        ["ip", "-n", shared_netns, "link", "add", "link", "enp4s0", "name", "mac7", "type", "macvlan"],
        ["ip", "-n", shared_netns, "tuntap", "add", "dev", "tap9", "mode", "tap"],
    ]  # fmt: skip
    try:
        for command in commands:
            subprocess.run(command, check=True)
        yield shared_netns
    finally:
        subprocess.run(["ip", "netns", "delete", peer], check=True)


@pytest.fixture(scope="module")
def seen(namespace: str) -> Machine:
    return look_at(Server("host", ServerConfig(fqdn="localhost"), Inside("host", namespace)))


def nic(machine: Machine, name: str) -> Nic:
    found = machine.nic(name)
    assert found, name
    return found


# -- real links --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("eno1", "carries the default route (eno1)"),
        ("eno2", "has the address 10.8.0.1 (br-lan, on top of eno2)"),
        ("enp2s0", "has the address 10.9.0.1 (enp2s0)"),
        ("enp3s0", "is a port of br-test"),
        ("enp4s0", "is below mac7, which would go with it (enp4s0)"),
        ("enp1s0f0", None),
        ("enp1s0f1", None),
    ],
)
def test_a_nic_that_the_machine_needs_is_not_for_the_test(seen: Machine, name: str, why: str | None) -> None:
    assert nic(seen, name).unfit == why


def test_a_free_nic_with_a_link_is_the_first_candidate(seen: Machine) -> None:
    assert [each.name for each in seen.candidates] == ["enp1s0f0", "enp1s0f1"]
    first, second = seen.candidates
    assert (first.mac, first.link, first.speed, first.is_veth) == ("b4:96:91:00:00:01", "10 Gbit/s", 10_000, True)
    assert (second.link, second.speed) == ("down", None)
    assert first.pci is first.driver is first.neighbour is None and not first.has_group


def test_bridges_taps_and_macvlans_are_links_but_no_nics(seen: Machine) -> None:
    assert {"lo", "br-lan", "br-test", "mac7", "tap9", "eno1"} <= seen.links
    assert not {"lo", "br-lan", "br-test", "mac7", "tap9"} & {each.name for each in seen.nics}
    assert {each.mac for each in seen.nics} <= seen.macs


def test_networks_are_those_of_addresses_and_of_routes(seen: Machine) -> None:
    for network in ("10.0.7.0/24", "10.9.0.0/16", "10.8.0.0/24", "192.168.56.0/22"):
        assert ip_network(network) in seen.networks
    assert ip_network("0.0.0.0/0") not in seen.networks
    assert nic(seen, "eno1").addresses[0] == "10.0.7.5/24"


def test_the_machine_itself_is_told_apart_from_its_namespaces(seen: Machine) -> None:
    here = look_at(Server("loadgen", ServerConfig(fqdn="localhost")))
    assert here.boot == seen.boot and here.namespace != seen.namespace and here.is_local
    assert (here.hostname, here.cpus, here.home) == (socket.gethostname(), os.cpu_count(), os.path.expanduser("~"))
    assert here.memory == int(Path("/proc/meminfo").read_text().split()[1]) // 1024
    assert "tmux" in here.programs and os.access(here.programs["tmux"], os.X_OK)
    assert ("/dev/kvm" in here.devices) == os.path.exists("/dev/kvm")


def test_the_nic_over_which_an_ssh_connection_came_is_not_for_the_test(namespace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    address = subprocess.run(
        ["ip", "-n", namespace, "-json", "-6", "address", "show", "dev", "enp1s0f0"], check=True, capture_output=True, text=True
    ).stdout
    local = json.loads(address)[0]["addr_info"][0]["local"]
    monkeypatch.setenv("SSH_CONNECTION", f"fe80::1 50000 {local}%enp1s0f0 22")
    found = look_at(Server("host", ServerConfig(fqdn="localhost"), Inside("host", namespace)))
    assert nic(found, "enp1s0f0").unfit == f"carries an SSH connection to this machine ({local}, enp1s0f0)"


@pytest.mark.default
def test_programs_and_files_are_found_in_the_usual_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = ("MoonGen/build/MoonGen", "src/moongen/bin/MoonGen", "qemu/build/qemu-system-x86_64", "MoonGen.old/build/MoonGen")
    for name in programs:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    for name in ("images/guest.qcow2", "xdp/reflector.bpf.o", "a/b/c/too-deep.qcow2", "images/#1.qcow2", "images/a #2.qcow2"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    monkeypatch.setenv("HOME", str(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    found = look_at(Server("host", ServerConfig(fqdn="localhost")))
    moongens = [f"{tmp_path}/MoonGen", f"{tmp_path}/src/moongen"]
    assert [each for each in found.moongens if each.startswith(str(tmp_path))] == moongens
    assert f"{tmp_path}/qemu/build/qemu-system-x86_64" in found.qemus
    images = [f"{tmp_path}/images/#1.qcow2", f"{tmp_path}/images/guest.qcow2"]
    assert [each for each in found.images if each.startswith(str(tmp_path))] == images
    assert f"{tmp_path}/xdp/reflector.bpf.o" in found.reflectors
    assert sorted(tmp_path.rglob("*")) == before


# -- PCI devices -------------------------------------------------------------------------------------------


def test_a_machine_with_pci_nics_is_seen_as_it_is() -> None:
    """What Debian 12 answered on a q35 machine with an IOMMU, three Intel cards and an admin NIC over which SSH came."""
    recorded = json.loads((Path(__file__).parent / "recorded/emulated-host.json").read_text())
    found = understand("host", recorded["answers"], recorded["shown"], user="root", home="/root")
    assert (found.hostname, found.cpus, found.memory) == ("autotest-emulated-host", 2, 2907)
    assert found.devices == {"/dev/kvm", "/dev/vhost-net"} and found.reflectors == ("/opt/autotest/xdp/reflector.bpf.o",)
    assert "dpdk-testpmd" not in found.programs and found.programs["luajit"] == "/usr/bin/luajit"
    admin = nic(found, "admin")
    assert admin.unfit == "carries an SSH connection to this machine (192.168.57.10, admin)" and admin.link == "up"
    assert [(each.name, each.pci, each.driver, each.has_group) for each in found.candidates] == [
        ("enp1s0", "0000:01:00.0", "e1000e", True),
        ("enp2s0", "0000:02:00.0", "e1000e", True),
        ("enp3s0f0", "0000:03:00.0", "e1000e", False),  # the two functions share a group
        ("enp3s0f1", "0000:03:00.1", "e1000e", False),
    ]
    assert {each.link for each in found.candidates} == {"down"}


# What `ip -json -details link show` of iproute2 6.1 printed for a NIC, without what is the same everywhere.
LINK = {
    "ifindex": 4, "ifname": "eth0", "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"], "mtu": 1400, "qdisc": "pfifo_fast",
    "operstate": "UP", "linkmode": "DEFAULT", "group": "default", "txqlen": 1000, "link_type": "ether", "address":
    "02:fc:00:00:00:01", "broadcast": "ff:ff:ff:ff:ff:ff", "promiscuity": 0, "num_tx_queues": 1, "parentbus": "pci",
}  # fmt: skip


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    """Two ports of a card in one IOMMU group each, one of another card without, and one that DPDK has."""
    kernel = FakeKernel(tmp_path).create()
    kernel.module("ice", takes="8086:10d3", net=True)
    kernel.module("vfio-pci")
    kernel.device("0000:51:00.0", group=1, driver="ice")
    kernel.device("0000:51:00.1", group=2, driver="ice")
    kernel.device("0000:52:00.0", driver="ice")
    kernel.device("0000:53:00.0", group=3, driver="vfio-pci")
    kernel.device("0000:00:02.0", code="0x030000")
    return kernel


def answered(kernel: FakeKernel, **network: str) -> dict[str, Any]:
    root = str(kernel.root)
    return {"bus": pci_there.bus(root), "interfaces": pci_there.interfaces(root), "network": EMPTY | network}


def shown(**values: str) -> dict[str, str]:
    links = [{**LINK, "ifname": f"eth{number}", "address": f"52:54:00:00:0{number}:00"} for number in range(3)]
    return {"links": json.dumps(links), "speeds": "eth0 25000\neth1 -1\neth2 \n", **values}


def test_nics_have_what_their_pci_devices_have(kernel: FakeKernel) -> None:
    found = understand("host", answered(kernel), shown())
    first, second, third, hidden = found.nics
    assert (first.pci, first.driver, first.speed, first.has_group) == ("0000:51:00.0", "ice", 25_000, True)
    assert (second.speed, second.link, third.speed, third.has_group) == (None, "up", None, False)
    assert (hidden.name, hidden.pci, hidden.driver) == ("", "0000:53:00.0", "vfio-pci")
    assert hidden.unfit and "bind it to its kernel driver" in hidden.unfit
    assert [each.name for each in found.candidates] == ["eth0", "eth1", "eth2"]


def test_a_wireless_nic_and_one_with_an_impossible_name_are_not_for_the_test(kernel: FakeKernel) -> None:
    links = json.loads(shown()["links"])
    links[1]["address"] = "00:00:00:00:00:00"
    found = understand("host", answered(kernel), shown(wireless="eth0\n", links=json.dumps(links)))
    assert nic(found, "eth0").unfit == "is wireless"
    assert str(nic(found, "eth1").unfit).startswith("cannot be in a configuration")


@pytest.mark.parametrize(
    "broken",
    [
        {"links": "no JSON"},
        {"links": "[[]]"},
        {"links": '[{"link_type": "ether"}]'},
        {"routes": '[{"dst": "nonsense"}]'},
        {"addresses": '[{"ifname": "eth0", "addr_info": [{"local": 5}]}]'},
        {"addresses": "{}"},
    ],
)
def test_what_linux_does_not_say_is_an_error_of_the_testbed(kernel: FakeKernel, broken: dict[str, str]) -> None:
    with pytest.raises(NotLinux):
        understand("host", answered(kernel), shown(**broken))


def test_without_any_answer_to_the_second_question_there_are_no_nics(kernel: FakeKernel) -> None:
    assert understand("host", answered(kernel), {}).candidates == ()


# -- machines that cannot be looked at ---------------------------------------------------------------------


class NotRoot(LocalTransport):
    """A login that is not root's."""

    @property
    def is_root(self) -> bool:
        return False


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes PATH hold only these programs of this machine, and a sudo of that text."""

    def make(*programs: str, sudo: str = "") -> None:
        for program in programs:
            (tmp_path / program).symlink_to(f"/usr/bin/{program}")
        if sudo:
            (tmp_path / "sudo").write_text(sudo)
            (tmp_path / "sudo").chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path))

    return make


_ASKS = "#!/bin/sh\necho 'sudo: a password is required' >&2\nexit 1\n"


@pytest.mark.default
def test_a_sudo_that_asks_for_a_password_is_named_with_the_remedy(path: Callable[..., None]) -> None:
    path("sh", "id", "timeout", sudo=_ASKS)
    with pytest.raises(TestbedError, match=r"host: sudo asks root for a password.*NOPASSWD: ALL.*root@river") as caught:
        look_at(Server("host", ServerConfig(fqdn="river"), NotRoot("host")))
    assert "\n" not in str(caught.value)


@pytest.mark.default
def test_without_sudo_the_login_must_be_roots(path: Callable[..., None]) -> None:
    path("sh", "id", "timeout", "env")
    with pytest.raises(TestbedError, match="host: there is no sudo, and root is not root: log in as root, root@river"):
        look_at(Server("host", ServerConfig(fqdn="river"), NotRoot("host")))


@pytest.mark.default
def test_programs_without_which_nothing_can_be_seen_are_named(path: Callable[..., None]) -> None:
    path("sh", "id", "true")
    with pytest.raises(TestbedError, match="host: looking at it needs ip, ss, python3: install it there"):
        look_at(Server("host", ServerConfig(fqdn="localhost"), LocalTransport("host")))


def test_a_machine_that_does_not_answer_is_named_with_what_to_try(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        config = tmp_path / "ssh_config"
        config.write_text(f"Host river\n  HostName 127.0.0.1\n  Port {unused.getsockname()[1]}\n")
        with pytest.raises(ConnectError, match=rf"Connection refused: see that `ssh -F {config} river` gets there$"):
            look("host", "river", str(config))
