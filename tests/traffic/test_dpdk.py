"""The NIC that MoonGen drives itself: found, bound, given huge pages, told from others by what MoonGen says, and given back."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_kernel import EMPTY, FakeKernel, FakeMachine
from fake_nics import (
    NIC,
    NIC_MAC,
    OTHER,
    OTHER_MAC,
    FakePci,
    device,
    given,
    hugepages,
    noted,
    reserved,
)

from autotest.config.testbed import GuestConfig
from autotest.errors import TestbedError, TrafficError
from autotest.network.links import Links
from autotest.network.pci import PciDevices
from autotest.servers.server import Server
from autotest.traffic import dpdk
from autotest.traffic.moongen import MoonGen
from autotest.traffic.reflectors import REFLECTOR_KINDS

MakeNics = Callable[..., tuple[Server, FakePci]]
PROGRAM = "load.lua"

# As libmoon prints it: MAC addresses in upper case, the model in green.
FOUND = "\x1b[1;37m[INFO]  Found {count} usable devices:\x1b[0m\n{devices}"
DEVICE = "   Device {port}: {mac} (\x1b[0;32mIntel Corporation 82599ES 10-Gigabit SFI/SFP+ Network Connection\x1b[0m)\n"
NIC_LINE = DEVICE.format(port=0, mac=NIC_MAC.upper())
OTHER_LINE = DEVICE.format(port=0, mac=OTHER_MAC.upper())


def says(tmp_path: Path, *lines: str, then: str = "exit 0") -> None:
    """Let MoonGen print that it found the devices of these lines, and go on."""
    (tmp_path / "said").write_text(FOUND.format(count=len(lines), devices="".join(lines)))
    for name in (PROGRAM, "reflector.lua"):
        (tmp_path / name).write_text(f"cat {tmp_path}/said\n{then}\n")


def driver(pci: FakePci, address: str = NIC) -> str | None:
    return pci.found[address].driver


# -- ready, and given back -----------------------------------------------------------------------------------


def test_the_nic_is_bound_with_memory_as_long_as_the_context_lasts(make_nics: MakeNics, tmp_path: Path) -> None:
    server, pci = make_nics()
    with dpdk.nic_ready(server):
        assert driver(pci) == "igb_uio" and driver(pci, OTHER) == "ixgbe"
        assert reserved(tmp_path) == [256, 256]
        assert given(dpdk.config_file(server)) == {
            "nic": NIC, "mac": NIC_MAC, "prefix": "autotest-0000-18-00.1", "memory": "512,512",
            "folder": str(tmp_path / "moongen"),
        }  # fmt: skip
    assert driver(pci) == "ixgbe" and "eth1" in pci.found[NIC].interfaces
    assert reserved(tmp_path) == [0, 0]
    assert not os.path.exists(dpdk.config_file(server)) and not noted(server)


def test_it_is_given_back_after_an_error_too(make_nics: MakeNics, tmp_path: Path) -> None:
    server, pci = make_nics()
    with pytest.raises(ZeroDivisionError), dpdk.nic_ready(server):
        raise ZeroDivisionError
    assert driver(pci) == "ixgbe" and reserved(tmp_path) == [0, 0]


def test_what_is_ready_is_left_as_it_is(make_nics: MakeNics) -> None:
    server, pci = make_nics()
    with dpdk.nic_ready(server):
        pages = Path(server.hugepages._root) / "sys/devices/system/node"
        for free in pages.glob("node*/hugepages/*/free_hugepages"):  # which the kernel counts by itself
            free.write_text("256\n")
        before = noted(server)
        with dpdk.nic_ready(server):
            assert noted(server) == before
        assert driver(pci) == "igb_uio"


def test_a_nic_that_the_user_has_bound_stays_bound(make_nics: MakeNics) -> None:
    server, pci = make_nics(device(NIC, "", "", "igb_uio"))
    with dpdk.nic_ready(server):
        assert "driver" not in noted(server)
    assert driver(pci) == "igb_uio"


def test_pages_of_another_size_that_are_there_and_mounted_are_enough(make_nics: MakeNics, tmp_path: Path) -> None:
    hugepages(tmp_path, nodes=2, free=1, size=1024 * 1024)
    server, _ = make_nics()
    with dpdk.nic_ready(server):
        assert reserved(tmp_path) == [0, 0] and "hugepages" not in noted(server)


def test_a_node_without_memory_gets_none(make_nics: MakeNics, tmp_path: Path) -> None:
    hugepages(tmp_path, nodes=3)
    nodes = tmp_path / "sys/devices/system/node"
    (nodes / "node1/hugepages").rename(nodes / "node1/gone")
    server, _ = make_nics()
    with dpdk.nic_ready(server):
        assert given(dpdk.config_file(server))["memory"] == "512,0,512"


def test_no_hugetlbfs_is_named_with_its_remedy_before_anything_is_touched(
    make_nics: MakeNics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, pci = make_nics()
    (tmp_path / "proc/mounts").write_text("")
    monkeypatch.setattr(server.journal, "note", lambda *_, **__: pytest.fail("changed"))
    said = r"no hugetlbfs .*mount -t hugetlbfs.*\(test_iface_dpdk_driv = igb_uio in section loadgen"
    with pytest.raises(TestbedError, match=said):
        with dpdk.nic_ready(server):
            raise AssertionError("it is ready")
    assert driver(pci) == "ixgbe" and reserved(tmp_path) == [0, 0]


def test_a_nic_that_is_not_bound_names_the_key_that_asks_for_it(make_nics: MakeNics) -> None:
    server, pci = make_nics(bind_in_use=(NIC,))
    pci.refused = "loadgen: there is no driver igb_uio: modprobe: FATAL: Module igb_uio not found"
    with pytest.raises(TestbedError, match=r"Module igb_uio not found \(test_iface_dpdk_driv = igb_uio in section loadgen"):
        with dpdk.nic_ready(server):
            raise AssertionError("it is ready")
    assert pci.asked == {"allowed": (NIC,), "needs_iommu": None}


@pytest.mark.parametrize(
    ("driver", "says", "needs"),
    [("vfio-pci", "Y", False), ("vfio-pci", "N", None), ("vfio-pci", "", None), ("igb_uio", "Y", None)],
)
def test_vfio_that_was_loaded_for_machines_without_iommu_needs_none(
    make_nics: MakeNics, monkeypatch: pytest.MonkeyPatch, driver: str, says: str, needs: bool | None
) -> None:
    server, pci = make_nics(test_iface_dpdk_driv=driver)
    run = server.run

    def answer(command: list[str], **options: Any) -> Any:
        asked = command == ["cat", "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"]
        return run(["echo", says]) if asked else run(command, **options)

    monkeypatch.setattr(server, "run", answer)
    with dpdk.nic_ready(server):
        assert pci.asked["needs_iommu"] is needs


# -- with the kernel that a NIC is bound in ------------------------------------------------------------------

SPARE, SPARE_MAC = "0000:02:00.0", "52:54:00:00:02:00"
SPARE_KEYS = {"test_iface": "eth1", "test_iface_addr": None, "test_iface_mac": SPARE_MAC}


@pytest.fixture
def kernel(tmp_path: Path) -> FakeKernel:
    """Two NICs on igb_uio's list, of which the second one is under test."""
    kernel = FakeKernel(tmp_path / "machine").create()
    kernel.module("e1000e", takes="8086:10d3", net=True)
    kernel.module("igb_uio", loaded=False)
    kernel.device("0000:01:00.0", driver="e1000e")
    kernel.device(SPARE, driver="e1000e")
    return kernel


def with_kernel(make_nics: MakeNics, kernel: FakeKernel, **keys: object) -> Server:
    server, _ = make_nics(**(SPARE_KEYS | keys))
    server.__dict__["pci"] = PciDevices(FakeMachine(kernel), server.note, root=str(kernel.root))
    return server


def test_the_kernel_has_everything_back_afterwards(make_nics: MakeNics, kernel: FakeKernel, tmp_path: Path) -> None:
    server = with_kernel(make_nics, kernel)
    kernel.register("igb_uio")
    before = kernel.state()
    says(tmp_path, DEVICE.format(port=0, mac=SPARE_MAC.upper()))
    for _ in range(2):
        with dpdk.nic_ready(server):
            assert kernel.driver_of(SPARE) == "igb_uio" and kernel.driver_of("0000:01:00.0") == "e1000e"
            run(server)
        assert kernel.state() == before


def test_a_nic_in_use_is_left_alone_unless_it_is_named_as_one_that_may_be_taken(make_nics: MakeNics, kernel: FakeKernel) -> None:
    server = with_kernel(make_nics, kernel)
    kernel.set(network={**EMPTY, "routes": '[{"dst": "default", "dev": "eth1"}]'})
    said = r"carries the default route.* add it to bind_in_use .*\(test_iface_dpdk_driv = igb_uio"
    with pytest.raises(TestbedError, match=said):
        with dpdk.nic_ready(server):
            raise AssertionError("it is ready")
    assert kernel.driver_of(SPARE) == "e1000e"


def test_a_driver_that_is_not_there_is_named_with_its_key(make_nics: MakeNics, kernel: FakeKernel) -> None:
    server = with_kernel(make_nics, kernel, test_iface_dpdk_driv="uio_pci_generic")
    said = "Module uio_pci_generic not found .*test_iface_dpdk_driv = uio_pci_generic in section loadgen"
    with pytest.raises(TestbedError, match=said):
        with dpdk.nic_ready(server):
            raise AssertionError("it is ready")
    assert not noted(server)


# -- which NIC -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        {"test_iface_addr": None}, {"test_iface_addr": None, "test_iface": "gone"},
        {"test_iface_addr": None, "test_iface_mac": None}, {"test_iface": "gone"}, {"test_iface_mac": None},
    ],
    ids=["interface", "MAC address", "interface alone", "address and MAC address", "address and interface"],
)  # fmt: skip
def test_the_nic_is_found_by_what_the_configuration_has(make_nics: MakeNics, keys: dict[str, str | None]) -> None:
    server, pci = make_nics(**keys)
    with dpdk.nic_ready(server):
        assert driver(pci) == "igb_uio" and driver(pci, OTHER) == "ixgbe"
        assert dpdk.nic_of(server) == dpdk.DpdkNic(NIC, "" if keys == {"test_iface_mac": None} else NIC_MAC)
        with dpdk.nic_ready(server):  # its interface is gone now
            assert driver(pci) == "igb_uio"
    assert driver(pci) == "ixgbe"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"test_iface_addr": "0000:19:00.0"}, "there is no PCI device 0000:19:00.0; its network devices are .*0000:18:00.1"),
        ({"test_iface_addr": OTHER}, f"{OTHER} is not the NIC with {NIC_MAC}, it is eth0 with {OTHER_MAC}: correct test_"),
        ({"test_iface": "eth0"}, f"test_iface eth0 is {OTHER}, not test_iface_addr {NIC}: correct one"),
        ({"test_iface": "eth0", "test_iface_addr": None}, f"eth0 has the MAC address {OTHER_MAC}, not test_iface_mac {NIC_MAC}"),
        (
            {"test_iface": "gone", "test_iface_addr": None, "test_iface_mac": "02:00:00:00:00:01"},
            "no PCI device has the interface gone, and no PCI device has the MAC address 02:00:00:00:00:01: set test_iface_addr",
        ),
    ],
)  # fmt: skip
def test_no_nic_or_another_one_is_an_error_before_anything_is_touched(
    make_nics: MakeNics, tmp_path: Path, keys: dict[str, str | None], says: str
) -> None:
    server, pci = make_nics(**keys)
    with pytest.raises(TestbedError, match=f"loadgen: .*{says}"):
        with dpdk.nic_ready(server):
            raise AssertionError("it is ready")
    assert {each.driver for each in pci.devices()} == {"ixgbe"} and reserved(tmp_path) == [0, 0] and not noted(server)


def test_two_nics_with_the_mac_address_are_named(make_nics: MakeNics) -> None:
    nics = (device(OTHER, "eth0", NIC_MAC), device(NIC, "eth1", NIC_MAC))
    server, _ = make_nics(*nics, test_iface="gone", test_iface_addr=None)
    with pytest.raises(TestbedError, match=f"{OTHER}, {NIC} have all the MAC address {NIC_MAC}: set test_iface_addr"):
        dpdk.make_nic_ready(server)


def test_in_a_guest_the_interface_counts_wherever_qemu_has_put_it(make_nics: MakeNics) -> None:
    passed_through = device("0000:00:05.0", "ens5", "b4:96:91:00:00:01", "ice")
    server, pci = make_nics(device(NIC, "admin", OTHER_MAC), passed_through, kind=GuestConfig)
    with dpdk.nic_ready(server, "ens5"):
        assert driver(pci, "0000:00:05.0") == "igb_uio" and driver(pci) == "ixgbe"
        assert dpdk.nic_of(server) == dpdk.DpdkNic("0000:00:05.0", "b4:96:91:00:00:01")


# -- the kernel's driver -------------------------------------------------------------------------------------


def test_without_a_dpdk_driver_the_interface_is_brought_up_and_no_device_is_asked_for(
    make_nics: MakeNics, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, pci = make_nics(test_iface_dpdk_driv=None)
    up: list[str] = []
    monkeypatch.setattr(Links, "up", lambda links, name: up.append(name))
    monkeypatch.setattr(Links, "show", lambda links, name: {"ifname": name})
    monkeypatch.setattr(pci, "devices", lambda: pytest.fail("asked"))
    with dpdk.nic_ready(server):
        assert up == ["eth1"] and driver(pci) == "ixgbe"


def test_a_nic_that_was_left_with_another_driver_gets_the_kernels_and_keeps_it_only_for_the_context(
    make_nics: MakeNics, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, pci = make_nics(test_iface_dpdk_driv=None)
    pci.give(NIC, "igb_uio")
    monkeypatch.setattr(Links, "up", lambda links, name: None)
    monkeypatch.setattr(Links, "show", lambda links, name: None)
    with dpdk.nic_ready(server):
        assert driver(pci) == "ixgbe"
    assert driver(pci) == "igb_uio"


@pytest.mark.parametrize("keys", [{"test_iface_driv": None}, {"test_iface_addr": None}, {"test_iface": "br-test"}])
def test_without_both_keys_or_for_another_interface_no_driver_is_touched(
    make_nics: MakeNics, monkeypatch: pytest.MonkeyPatch, keys: dict[str, str | None]
) -> None:
    server, pci = make_nics(**keys)
    pci.give(NIC, "igb_uio")
    monkeypatch.setattr(Links, "show", lambda links, name: None)
    dpdk.kernel_interface(server, "eth1")
    assert driver(pci) == "igb_uio"


# -- what MoonGen says ---------------------------------------------------------------------------------------


def run(server: Server, code: int = 0) -> str:
    end = MoonGen(server).run(PROGRAM, ["--rate", "5"], fetch={}, seconds=0, timeout=5)
    assert end.code == code and end.interface is None
    return end.output


def test_a_program_runs_on_the_nic_that_was_made_ready(
    make_nics: MakeNics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Links, "frames", lambda links, name: pytest.fail("the kernel was asked for counters"))
    server, pci = make_nics()
    says(tmp_path, NIC_LINE)
    with dpdk.nic_ready(server):
        for _ in range(2):
            words = run(server).splitlines()
            assert words[:5] == [f"{tmp_path}/{PROGRAM}", f"--dpdk-config={dpdk.config_file(server)}", "0", "--rate", "5"]
            assert driver(pci) == "igb_uio"
            assert os.path.exists(dpdk.config_file(server))


def test_a_program_that_is_run_alone_gets_the_nic_for_itself(make_nics: MakeNics, tmp_path: Path) -> None:
    server, pci = make_nics()
    says(tmp_path, NIC_LINE)
    run(server)
    assert driver(pci) == "ixgbe" and reserved(tmp_path) == [0, 0]


def test_another_nic_on_the_port_is_an_error_that_names_both(make_nics: MakeNics, tmp_path: Path) -> None:
    server, _ = make_nics()
    says(tmp_path, OTHER_LINE, NIC_LINE.replace("Device 0", "Device 1"))
    with pytest.raises(TrafficError, match=f"port 0 .* {OTHER_MAC}, but {NIC} should have {NIC_MAC}: nothing is measured"):
        run(server)
    says(tmp_path, OTHER_LINE, then="exit 1")
    with pytest.raises(TrafficError, match=f"{OTHER_MAC}, but {NIC} should have {NIC_MAC}"):
        run(server)


@pytest.mark.parametrize("code", [0, 1])
def test_no_usable_nic_is_told_with_what_moongen_said(make_nics: MakeNics, tmp_path: Path, code: int) -> None:
    server, _ = make_nics()
    says(tmp_path, then=f"echo there are only 0 ports; exit {code}")
    with pytest.raises(TrafficError, match=f"(?s)finds no NIC .* at {NIC}: .*cannot use igb_uio:.*there are only 0"):
        run(server)


def test_a_program_that_ends_in_order_must_say_which_nic_it_used(make_nics: MakeNics, tmp_path: Path) -> None:
    server, _ = make_nics()
    (tmp_path / PROGRAM).write_text("echo done")
    with pytest.raises(TrafficError, match="(?s)loadgen: MoonGen does not say which NIC port 0 is:.*done"):
        run(server)


def test_a_program_that_fails_before_it_could_say_speaks_for_itself(make_nics: MakeNics, tmp_path: Path) -> None:
    server, _ = make_nics()
    (tmp_path / PROGRAM).write_text("echo EAL: no memory; exit 1")
    assert "EAL: no memory" in run(server, code=1)


def test_the_lines_of_a_real_run_are_understood(make_nics: MakeNics) -> None:
    server, _ = make_nics()
    lines = DEVICE.format(port=0, mac="08:9E:01:9B:21:1F"), DEVICE.format(port=1, mac=NIC_MAC.upper())
    said = FOUND.format(count=2, devices="".join(lines))
    said += "\x1b[1;37m[INFO]  Device 1 (64:9D:99:B1:0B:62) is up: 10000 MBit/s\x1b[0m\n"
    dpdk.require_nic(server, dpdk.DpdkNic("0000:20:00.0", "08:9e:01:9b:21:1f"), said)
    dpdk.require_nic(server, dpdk.DpdkNic("0000:20:00.0", ""), said)  # no MAC address is known to compare with
    with pytest.raises(TrafficError, match="08:9e:01:9b:21:1f, but 0000:18:00.1 should have 64:9d:99:b1:0b:62"):
        dpdk.require_nic(server, dpdk.DpdkNic(NIC, NIC_MAC), said)


# -- reflectors ----------------------------------------------------------------------------------------------

READY = "echo reflector ready; while :; do sleep 0.02; done"


def test_the_reflector_has_the_nic_until_it_is_left(make_nics: MakeNics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Links, "require", lambda links, name: pytest.fail("the kernel was asked for the interface"))
    server, pci = make_nics()
    says(tmp_path, NIC_LINE, then=READY)
    for _ in range(2):
        with server.journal.scope():
            REFLECTOR_KINDS["moongen"].up(server, "eth1")
            assert driver(pci) == "igb_uio" and server.session("reflector").exists()
            REFLECTOR_KINDS["moongen"].check(server, "eth1")
        assert driver(pci) == "ixgbe" and not server.session("reflector").exists()


def test_a_reflector_on_another_nic_does_not_run_on(make_nics: MakeNics, tmp_path: Path) -> None:
    server, pci = make_nics()
    says(tmp_path, OTHER_LINE, then=READY)
    with pytest.raises(TrafficError, match=f"{OTHER_MAC}, but {NIC} should have {NIC_MAC}"):
        with server.journal.scope():
            REFLECTOR_KINDS["moongen"].up(server, "eth1")
            raise AssertionError("it reflects")
    assert driver(pci) == "ixgbe" and not server.session("reflector").exists()


def test_the_xdp_reflector_gets_the_kernels_driver(make_nics: MakeNics, monkeypatch: pytest.MonkeyPatch) -> None:
    server, pci = make_nics(xdp_reflector_dir="/xdp")
    pci.give(NIC, "igb_uio")
    monkeypatch.setattr(Links, "show", lambda links, name: {"flags": ["UP", "LOWER_UP"]} if pci.found[NIC].interfaces else None)
    monkeypatch.setattr(Links, "attach_xdp", lambda links, name, mode, path, section: None)
    with server.journal.scope():
        REFLECTOR_KINDS["xdp"].up(server, "eth1")
        assert driver(pci) == "ixgbe"
    assert driver(pci) == "igb_uio"
