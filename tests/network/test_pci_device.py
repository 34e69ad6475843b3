"""What sysfs, iproute2 and ss say is understood strictly: what they do not say is an error that says so."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from typing import Any

import pytest
from examples import examples
from fake_kernel import EMPTY, FakeKernel
from hostile import FakeMachine, answers, json_values
from hypothesis import given, settings

from autotest.errors import AutotestError, TestbedError
from autotest.network import pci_there
from autotest.network.nic_use import parse_use
from autotest.network.pci import PciDevices
from autotest.network.pci_device import NotLinux, PciDevice, parse_bus

NIC = "0000:01:00.0"


@pytest.fixture
def bus(kernel: FakeKernel) -> dict[str, Any]:
    return pci_there.bus(str(kernel.root))


@pytest.fixture
def interfaces(kernel: FakeKernel) -> dict[str, Any]:
    return pci_there.interfaces(str(kernel.root))


def test_a_device_has_all_that_sysfs_says(kernel: FakeKernel, interfaces: dict[str, Any]) -> None:
    folder = kernel.pci / "devices" / NIC
    for name, value in {"numa_node": "1", "driver_override": "e1000e", "sriov_totalvfs": "7", "sriov_numvfs": "0"}.items():
        (folder / name).write_text(f"{value}\n")
    device = parse_bus(pci_there.bus(str(kernel.root)), interfaces).devices[NIC]
    (member,) = device.group
    assert device == PciDevice(
        NIC, 0x8086, 0x10D3, 0x020000, "e1000e", "e1000e", 1, 17, (member,), {"eth1": "52:54:00:00:01:00"}, sriov_totalvfs=7
    )
    assert (member.name, member.class_code, member.driver) == (NIC, 0x020000, "e1000e")


def test_an_interface_belongs_to_the_device_also_where_another_bus_is_between(kernel: FakeKernel) -> None:
    name = kernel.net / "eth0"
    path = name.resolve()
    virtio = (kernel.pci / "devices/0000:00:02.0").resolve() / "virtio0"
    virtio.mkdir()
    (path / "device").unlink()
    (path / "device").symlink_to(virtio)
    found = parse_bus(pci_there.bus(str(kernel.root)), pci_there.interfaces(str(kernel.root)))
    assert found.devices["0000:00:02.0"].interfaces == {"eth0": "52:54:00:00:00:02"}


def test_a_group_that_vfio_made_up_without_an_iommu_is_none(kernel: FakeKernel, interfaces: dict[str, Any]) -> None:
    (kernel.root / "sys/kernel/iommu_groups/17/name").write_text("vfio-noiommu\n")
    assert parse_bus(pci_there.bus(str(kernel.root)), interfaces).devices[NIC].iommu_group is None


WRONG: dict[str, Any] = {
    "vendor": ["8086", "0x80867", "", None, 32902, "0x80٣6"],
    "device": ["x", None],
    "class": ["0x0200", None, "0x02000g"],
    "numa_node": ["-2", "x", "1.0"],
    "driver": [7, ["e1000e"]],
    "iommu_group": ["99", "x"],
    "driver_override": [3],
    "physfn": [1],
    "sriov_numvfs": ["-1", "many", "9" * 20],
    "sriov_totalvfs": [4],
    "sriov_drivers_autoprobe": ["yes"],
    "virtfn": [None, {"1": "0000:01:00.1"}, {"0": "x"}, {"a": "0000:01:00.1"}],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_that_linux_does_not_write_is_told(
    bus: dict[str, Any], interfaces: dict[str, Any], name: str, value: Any
) -> None:
    parse_bus(bus, interfaces)
    bus["devices"][NIC][name] = value
    with pytest.raises(NotLinux, match=NIC):
        parse_bus(bus, interfaces)


def test_an_address_that_is_none_is_told(bus: dict[str, Any], interfaces: dict[str, Any]) -> None:
    bus["devices"]["; reboot"] = bus["devices"][NIC]
    with pytest.raises(NotLinux, match="a PCI address is '; reboot'"):
        parse_bus(bus, interfaces)


@settings(max_examples=examples(60))
@given(json_values, json_values)
def test_any_answer_is_understood_or_told(some: Any, more: Any) -> None:
    for use in (
        lambda: parse_bus(some, more),
        lambda: parse_bus({"devices": {NIC: some}, "groups": {}, "drivers": [], "disks": {}}, {}),
        lambda: parse_bus({"devices": {}, "groups": {"1": some}, "drivers": more, "disks": {}}, {}),
        lambda: parse_bus({"devices": {}, "groups": {}, "drivers": [], "disks": {}}, {"eth0": some}),
        lambda: parse_use(some),
        lambda: parse_use({**EMPTY, "addresses": json.dumps(some), "routes": json.dumps(more)}),
        lambda: parse_use({**EMPTY, "connections": some, "login": more}),
    ):
        with contextlib.suppress(NotLinux):
            use()


@settings(max_examples=examples(40))
@given(answers, json_values)
def test_whatever_a_machine_answers_is_a_clear_error(text: str, some: Any) -> None:
    printed = [text, *map(json.dumps, (some, {"answers": some}, {"answers": {"bus": some, "interfaces": some}}))]
    pci = PciDevices(FakeMachine(lambda command: printed[0]))
    while printed:
        for use in (pci.devices, lambda: pci.require(NIC), lambda: pci.bind(NIC, "vfio-pci"), lambda: pci.holders(NIC)):
            with pytest.raises(TestbedError, match="^far: "):
                use()
        del printed[0]


@pytest.mark.parametrize("holders", [None, 1, "x", [1], [{}], [{"pid": "x", "command": "", "holds": ""}]])
def test_processes_that_are_none_are_told(holders: Any) -> None:
    pci = PciDevices(FakeMachine(lambda command: json.dumps({"answers": {"holders": holders}})))
    with pytest.raises(AutotestError, match="it says what Linux does not"):
        pci.holders(NIC)


def test_what_could_not_be_done_there_is_told_with_what_the_kernel_says() -> None:
    pci = PciDevices(FakeMachine(lambda command: json.dumps({"answers": {}, "error": "/proc/1/fd: Permission denied"})))
    with pytest.raises(TestbedError, match="^far: /proc/1/fd: Permission denied$"):
        pci.holders(NIC)


# -- what the network says ---------------------------------------------------------------------------------


def test_addresses_of_a_link_are_told_from_those_that_all_may_know() -> None:
    info = [
        {"local": "192.168.1.2", "scope": "global"}, {"local": "fe80::1", "scope": "link"}, {"local": "127.0.0.1", "scope": "host"},
        {"local": "fec0::1", "scope": "site"}, {"local": "10.9.9.9", "scope": "200"}, {},
    ]  # fmt: skip
    use = parse_use({**EMPTY, "addresses": json.dumps([{"ifname": "a", "addr_info": info}, {"ifname": "b"}, {}])})
    assert use.addresses == {"a": ("192.168.1.2", "fec0::1", "10.9.9.9"), "b": ()}
    assert use.local_addresses["a"] == ("fe80::1", "127.0.0.1")


@pytest.mark.parametrize(
    ("line", "address"),
    [
        ('0      0               10.0.2.15:22       10.0.2.2:51234 users:(("sshd",pid=612,fd=4),("sshd",pid=600,fd=4))', "10.0.2.15"),
        ('0 36 [fe80::5054:ff:fe12:3456]%enp1s0:22 [fe80::1]%enp1s0:40000 users:(("sshd-session",pid=9,fd=4))',
         "fe80::5054:ff:fe12:3456"),
        ('0 0 [::ffff:192.168.7.1]:2222 [::ffff:192.168.7.2]:40000 users:(("sshd",pid=9,fd=4))', "192.168.7.1"),
        ('0 0 [2001:DB8::1]:22 [2001:db8::2]:40000 users:(("systemd",pid=1,fd=40),("sshd",pid=9,fd=3))', "2001:db8::1"),
        ('0 0 10.0.2.15%eth0:22 10.0.2.2:51234 users:(("sshd",pid=612,fd=4))', "10.0.2.15"),
        ('0 0 10.0.2.15:5432 10.0.2.2:51234 users:(("postgres",pid=612,fd=4))', None),
        ("0 0 10.0.2.15:22 10.0.2.2:51234", None),
    ],
)  # fmt: skip
def test_connections_of_the_ssh_server_are_found(line: str, address: str | None) -> None:
    assert parse_use({**EMPTY, "connections": f"{line}\n"}).ssh == (frozenset([address]) if address else frozenset())


@pytest.mark.parametrize("line", ["State Recv-Q", "0 0", "x 0 10.0.0.1:22 10.0.0.2:1 y", "0 0 x:22 y:1"])
def test_a_line_that_ss_does_not_print_is_told(line: str) -> None:
    with pytest.raises(NotLinux, match="ss: "):
        parse_use({**EMPTY, "connections": line})


_CONNECT = """
import json, socket, sys
sys.argv = ["there", json.dumps({"root": "/", "asked": {"network": {}}})]
open("/proc/self/comm", "w").write("sshd")
servers = [socket.create_server(("127.0.0.1", 0)), socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)]
clients = [socket.create_connection((host, servers[number].getsockname()[1])) for number, host in ((0, "127.0.0.1"), (1, "::1"))]
accepted = [server.accept() for server in servers]
exec(compile(open(PATH).read(), PATH, "exec"))
"""


def test_the_real_ss_and_iproute2_are_understood(netns: str) -> None:
    ip = ["ip", "-n", netns]
    for words in (
        ["link", "add", "br0", "type", "bridge"], ["address", "add", "10.77.0.1/24", "dev", "br0"], ["link", "set", "br0", "up"],
        ["address", "add", "fd77::1/64", "dev", "br0", "nodad"], ["route", "add", "default", "via", "10.77.0.2"],
        ["-6", "route", "add", "default", "via", "fd77::2"],
    ):  # fmt: skip
        subprocess.run([*ip, *words], check=True)
    program = _CONNECT.replace("PATH", repr(pci_there.__file__))
    environment = {"PATH": "/usr/bin:/usr/sbin:/bin:/sbin", "SSH_CONNECTION": "10.77.0.9 40000 10.77.0.1 22"}
    command = ["ip", "netns", "exec", netns, sys.executable, "-c", program]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    answer = json.loads(printed)["answers"]["network"]
    assert "127.0.0.1:" in answer["connections"] and "[::1]:" in answer["connections"]
    use = parse_use(answer)
    assert use.addresses["br0"] == ("10.77.0.1", "fd77::1") and use.default_routes == {"br0"}
    assert "10.77.0.1" in use.ssh and use.ssh <= {"10.77.0.1", "127.0.0.1", "::1"}
    for route in ("routes", "routes6"):
        left = copy.deepcopy(answer)
        left[route] = "[]"
        assert parse_use(left).default_routes == {"br0"}
