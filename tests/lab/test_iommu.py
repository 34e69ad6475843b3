"""The emulated host: PCI devices of a real kernel are bound, given back and refused, and guests get real frames through them.

Slow: the host is emulated, and its guests are guests of a guest.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from labtest import PROJECT, CampaignFile, LabCommand, lab_command, own_lab
from variants import with_keys

from autotest.config.testbed import load_testbed
from autotest.errors import TestbedError
from autotest.lab.emulated.host import (
    SHARED_ADDRESSES,
    SPARE_ADDRESS,
    SRIOV_ADDRESS,
    WIRE_ADDRESS,
    EmulatedHost,
)
from autotest.remote.wait import wait_for
from autotest.servers.host import Host
from autotest.servers.testbed import Servers

pytestmark = pytest.mark.all

_ADMIN_ADDRESS = "0000:00:02.0"
_STORAGE_CLASS = 1  # base class of NVMe controllers
_SPARE_INTERFACE = "enp2s0"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_lab(PROJECT / "configs/lab-iommu.conf", tmp_path_factory.mktemp("iommu") / "autotest.conf")


@pytest.fixture(scope="module")
def lab(config: Path) -> Iterator[LabCommand]:
    """One emulated host for all tests of this file; nothing is left of it."""
    with contextmanager(lab_command)(config) as command:
        printed = command.run("lab", "up", timeout=900)  # with the images to be built
        assert "emulated host" in printed and "not running" not in printed.partition("emulated host")[2].splitlines()[0]
        yield command


@pytest.fixture
def servers(lab: LabCommand) -> Iterator[Servers]:
    """What a test changes on the emulated host is undone at its end."""
    with Servers(load_testbed(lab.config, PROJECT)) as servers, servers.journal.scope():
        yield servers


@pytest.fixture
def host(servers: Servers) -> Host:
    return servers.host


def _driver(host: Host, address: str) -> str:
    """The driver as sysfs has it, whatever autotest thinks."""
    found = host.run(["readlink", f"/sys/bus/pci/devices/{address}/driver"], check=False).stdout
    return found.strip().rpartition("/")[2]


def _passing(address: str) -> list[str]:
    """A QEMU that holds the device, paused before its first instruction."""
    return [
        *("qemu-system-x86_64", "-nodefaults", "-display", "none", "-machine", "pc", "-accel", "tcg", "-m", "64", "-S"),
        *("-device", f"vfio-pci,host={address}"),
    ]


# -- drivers -------------------------------------------------------------------------------------------


def test_a_nic_is_bound_to_vfio_pci_and_comes_back_with_its_interface_as_it_was(servers: Servers, host: Host):
    host.run(["ip", "link", "set", "dev", _SPARE_INTERFACE, "mtu", "1400", "up"])
    before = host.pci.require(SPARE_ADDRESS)
    with servers.journal.scope():
        bound = host.pci.bind(SPARE_ADDRESS, "vfio-pci")
        assert bound.driver == _driver(host, SPARE_ADDRESS) == "vfio-pci"
        assert host.links.show(_SPARE_INTERFACE) is None
        assert host.run(["test", "-c", f"/dev/vfio/{bound.iommu_group}"], check=False).code == 0
        assert host.pci.bind(SPARE_ADDRESS, "vfio-pci") == bound  # once is enough
    assert _driver(host, SPARE_ADDRESS) == "e1000e"
    assert host.pci.require(SPARE_ADDRESS) == before
    link = host.links.require(_SPARE_INTERFACE)
    assert link["mtu"] == 1400 and "UP" in link["flags"]
    host.run(["ip", "link", "set", "dev", _SPARE_INTERFACE, "mtu", "1500", "down"])


def test_what_a_killed_autotest_bound_is_given_back_by_recover(lab: LabCommand):
    _bind_and_be_killed(lab)
    printed = lab.run("recover")
    assert f"{SPARE_ADDRESS}: bound to e1000e again" in printed


def test_what_was_bound_in_an_emulated_host_that_ended_is_forgotten_and_it_comes_up_again(lab: LabCommand):
    _bind_and_be_killed(lab)
    testbed = load_testbed(lab.config, PROJECT)
    assert testbed.lab
    EmulatedHost(testbed, Path(testbed.lab.directory, "emulated-host")).stop()
    assert "not running" in lab.run("lab", "status")
    assert "nothing was left to undo" in lab.run("recover")
    lab.run("lab", "up", timeout=300)
    assert _of_host(lab, f"readlink /sys/bus/pci/devices/{SPARE_ADDRESS}/driver").endswith("/e1000e")


def _bind_and_be_killed(lab: LabCommand) -> None:
    code = f"import os; host.pci.bind({SPARE_ADDRESS!r}, 'vfio-pci'); os.kill(os.getpid(), 9)\n"
    process = lab.start("shell", "-G")
    process.communicate(code, timeout=120)
    assert process.returncode == -9


def test_a_driver_that_does_not_take_the_device_is_named_and_the_nic_works_on(servers: Servers, host: Host):
    with pytest.raises(TestbedError, match="nosuchdriver"), servers.journal.scope():
        host.pci.bind(SPARE_ADDRESS, "nosuchdriver")
    with pytest.raises(TestbedError, match=f"e1000 was asked for {SPARE_ADDRESS}, but it has no driver"), servers.journal.scope():
        host.pci.bind(SPARE_ADDRESS, "e1000")  # of an older family
    assert _driver(host, SPARE_ADDRESS) == "e1000e"
    assert host.pci.interface_of(SPARE_ADDRESS) == _SPARE_INTERFACE


def test_half_of_an_iommu_group_is_refused_as_qemu_itself_would_refuse_it(servers: Servers, host: Host):
    first, second = SHARED_ADDRESSES
    assert host.pci.require(first).iommu_group == host.pci.require(second).iommu_group
    with pytest.raises(TestbedError, match=f"(?s)as a whole.*{second}"):
        host.pci.bind(first, "vfio-pci")
    with servers.journal.scope():
        host.pci.bind(first, "vfio-pci", needs_iommu=False)
        assert second in (host.pci.group_problem(first) or "")
        refused = host.run(_passing(first), check=False)
        assert refused.code != 0 and "not viable" in refused.stderr
        host.pci.bind(second, "vfio-pci")  # the group is whole now
        assert host.pci.group_problem(first) is None
    assert [_driver(host, address) for address in SHARED_ADDRESSES] == ["e1000e", "e1000e"]
    assert [host.pci.interface_of(address) for address in SHARED_ADDRESSES] == ["enp3s0f0", "enp3s0f1"]


def test_virtual_functions_are_made_bound_and_removed(servers: Servers, host: Host):
    with servers.journal.scope():
        functions = host.pci.set_virtual_functions(SRIOV_ADDRESS, 2)
        assert functions == ["0000:04:00.1", "0000:04:00.2"]
        assert [_driver(host, address) for address in functions] == ["", ""]
        device = host.pci.bind(functions[0], "vfio-pci", kinds=(_STORAGE_CLASS,))
        assert device.is_virtual_function and _driver(host, functions[0]) == "vfio-pci"
        with pytest.raises(TestbedError, match="has 2 virtual functions already"):
            host.pci.set_virtual_functions(SRIOV_ADDRESS, 1)
    assert host.pci.show(functions[0]) is None
    physical = host.pci.require(SRIOV_ADDRESS)
    assert physical.sriov_numvfs == 0 and physical.sriov_drivers_autoprobe and physical.driver == "nvme"
    with pytest.raises(TestbedError, match="1 to 2 virtual functions, not 3"):
        host.pci.set_virtual_functions(SRIOV_ADDRESS, 3)


# -- what is not touched -------------------------------------------------------------------------------


def test_the_nic_that_carries_the_ssh_connection_is_refused(host: Host):
    with pytest.raises(TestbedError, match=r"SSH connection to this machine \(192\.168\.57\.10"):
        host.pci.bind(_ADMIN_ADDRESS, "vfio-pci")
    assert _driver(host, _ADMIN_ADDRESS) == "virtio-pci"


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        ([["ip", "address", "add", "10.99.0.1/24", "dev", _SPARE_INTERFACE]], "has the address 10.99.0.1"),
        ([["ip", "route", "add", "default", "dev", _SPARE_INTERFACE]], "carries the default route"),
    ],
)
def test_a_nic_that_is_used_is_refused_unless_it_is_named(servers: Servers, host: Host, commands: list[list[str]], reason: str):
    host.run(["ip", "link", "set", "dev", _SPARE_INTERFACE, "up"])
    try:
        for command in commands:
            host.run(command)
        assert reason in (host.pci.refusal(SPARE_ADDRESS) or "")
        with pytest.raises(TestbedError, match=reason):
            host.pci.bind(SPARE_ADDRESS, "vfio-pci")
        assert _driver(host, SPARE_ADDRESS) == "e1000e"
        with servers.journal.scope():
            assert host.pci.bind(SPARE_ADDRESS, "vfio-pci", allowed=[SPARE_ADDRESS]).driver == "vfio-pci"
    finally:
        host.run(["ip", "address", "flush", "dev", _SPARE_INTERFACE])
        host.run(["ip", "link", "set", "dev", _SPARE_INTERFACE, "down"])


def test_a_device_that_a_running_qemu_holds_is_refused_at_once_instead_of_hanging(servers: Servers, host: Host):
    with servers.journal.scope():
        host.pci.bind(SPARE_ADDRESS, "vfio-pci")
        host.session("holder").start(_passing(SPARE_ADDRESS))
        wait_for(lambda: host.pci.holders(SPARE_ADDRESS), "QEMU to open the device", 60)
        with pytest.raises(TestbedError, match="qemu-system"):
            host.pci.bind(SPARE_ADDRESS, "e1000e")
        assert _driver(host, SPARE_ADDRESS) == "vfio-pci"
    assert _driver(host, SPARE_ADDRESS) == "e1000e"


# -- guests --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("accelerator", ["kvm", "tcg"])
@pytest.mark.parametrize(("interface", "vhosts"), [("vfio", "false"), ("bridge", "true")])
def test_frames_pass_through_a_guest_of_the_emulated_host(
    lab: LabCommand, tests: CampaignFile, tmp_path: Path, accelerator: str, interface: str, vhosts: str
):
    accelerated = with_keys(lab, tmp_path / "autotest.conf", host={"accelerator": accelerator})
    tests.write(interfaces=interface, vhosts=vhosts, rates="1", runtimes="2")
    accelerated.run("test-load-lat-file", str(tests.file), timeout=1800)  # TCG in TCG
    (path,) = tests.trials()
    trial = json.loads(path.read_text())
    figures, guest = trial["figures"], trial["machines"]["guest"]
    # A machine that is busy with something else may hold up the sender, so not the verdict is looked at.
    assert 1000 <= figures["sent"] <= 2000
    assert 0.9 * figures["sent"] <= figures["received"] <= figures["sent"]
    assert figures["samples"] >= 10
    assert guest["accelerator"] == accelerator
    wanted = {"vfio": f"vfio-pci,host={WIRE_ADDRESS}", "bridge": "vhost=on"}[interface]
    assert wanted in guest["command line"]
    assert _of_host(lab, f"readlink /sys/bus/pci/devices/{WIRE_ADDRESS}/driver").endswith("/e1000e")
    assert _of_host(lab, "ls /sys/class/net").split() == ["admin", "enp1s0", "enp2s0", "enp3s0f0", "enp3s0f1", "lo"]


def _of_host(lab: LabCommand, script: str) -> str:
    testbed = load_testbed(lab.config, PROJECT)
    command = ["ssh", "-F", str(testbed.host.ssh_config), testbed.host.fqdn, script]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
