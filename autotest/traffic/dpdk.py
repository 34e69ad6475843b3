"""The test NIC as MoonGen finds it: the file behind ``--dpdk-config``, and with a DPDK driver the NIC bound to it.

MoonGen numbers its ports by PCI address among all NICs that are bound to such drivers, whoever bound them. So it is given one
NIC only, which is port 0 then, and its own output must say that this is the NIC that the configuration means.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotest.config.testbed import GuestConfig
from autotest.errors import ConnectError, TestbedError, TrafficError
from autotest.network.pci_device import PciDevice, is_vfio
from autotest.remote.transport import to_bytes
from autotest.servers.server import Server

log = logging.getLogger(__name__)

PORT = 0
# MiB of each NUMA node: mempools are made on that of the NIC and on those of the tasks. 256 were enough for our programs.
MEMORY = 512
_NO_IOMMU = "/sys/module/vfio/parameters/enable_unsafe_noiommu_mode"
_ONE_NIC = Path(__file__).with_name("one-nic.lua")
_IN_LUA = {byte: chr(byte) if 32 <= byte < 127 else f"\\{byte:03}" for byte in range(256)}
_IN_LUA |= {ord('"'): '\\"', ord("\\"): "\\\\"}
# DPDK's rte_kvargs.c splits there, or takes what follows for a list; there is no escape.
_NOT_IN_A_DEVICE = re.compile(r"[,=\[\]()\s\0]|^$")
_GIVEN = re.compile(r'local given = \{ nic = "([0-9a-f:.]+)", mac = "([0-9a-f:]*)", ')
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# libmoon, lua/dpdk.lua, once DPDK is initialised.
_FOUND = re.compile(r"Found ([0-9]{1,4}) usable devices:")
_DEVICE = re.compile(r"^ *Device ([0-9]{1,4}): ((?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}) \(", re.MULTILINE)


@dataclass(frozen=True)
class DpdkNic:
    """A NIC that MoonGen drives itself: its PCI address, and the MAC address that it must have, empty where none is known."""

    address: str
    mac: str


# -- files for --dpdk-config -------------------------------------------------------------------------------


def interface_config(iface: str, file_prefix: str) -> str:
    """A ``--dpdk-config`` file that makes the kernel interface port 0, without hugepages or PCI devices.

    The options are the ones that worked with MoonGen 7746ff2 and its DPDK 17.08; softmoon reads the vdev entry.

    Raises:
        TrafficError: DPDK has no way to write that name.
    """
    if found := _NOT_IN_A_DEVICE.search(iface):
        raise TrafficError(f"DPDK takes no interface named {iface!r}: to --vdev {found[0]!r} is not part of a name")
    options = ["--no-huge", "-m", "256", "--no-pci", "--file-prefix", file_prefix]
    options += ["--vdev", f"net_af_packet0,iface={iface},qpairs=2"]
    return "DPDKConfig {\n  cli = { " + ", ".join(lua_string(option) for option in options) + " },\n}\n"


def nic_config(nic: DpdkNic, folder: str, memory: Sequence[int]) -> str:
    """A ``--dpdk-config`` file that makes the NIC port 0; the dpdk-conf.lua of the installation in ``folder`` holds otherwise.

    ``memory`` is in MiB, of each NUMA node. Other processes of DPDK may run there: this one's files have names of their own.
    """
    given = {
        "nic": nic.address,
        "mac": nic.mac,
        "prefix": f"autotest-{nic.address.replace(':', '-')}",
        "memory": ",".join(map(str, memory)),
        "folder": folder,
    }
    fields = ", ".join(f"{name} = {lua_string(value)}" for name, value in given.items())
    return f"local given = {{ {fields} }}\n{_ONE_NIC.read_text()}"


def lua_string(text: str) -> str:
    """The text as a string of Lua: what is not plain ASCII goes in as the numbers of its bytes."""
    return '"' + "".join(_IN_LUA[byte] for byte in to_bytes(text)) + '"'


# -- the NIC -----------------------------------------------------------------------------------------------


@contextmanager
def nic_ready(server: Server, iface: str | None = None) -> Iterator[None]:
    """The server's test NIC as MoonGen takes it, as long as the context lasts; see :func:`make_nic_ready`."""
    with server.journal.scope():
        make_nic_ready(server, iface)
        yield


def make_nic_ready(server: Server, iface: str | None = None) -> DpdkNic | None:
    """Bind the test NIC to its DPDK driver, with huge pages for MoonGen; without such a driver, bring up its interface.

    The journal undoes it. Where it is so already, nothing is changed. Returns the NIC that MoonGen drives then, None where it
    is the kernel's.

    Args:
        iface: the test interface, by default that of the configuration; a guest's was found by its MAC address.

    Raises:
        TestbedError: no NIC is found, or another one than the configuration means; it is in use; there is no such driver, or
            not enough memory.
    """
    config = server.config
    iface = iface or config.test_iface
    if config.test_iface_dpdk_driv is None:
        if iface:
            kernel_interface(server, iface)
            server.links.up(iface)
        return None
    server.require_programs(["python3"], "binding the test NIC (test_iface_dpdk_driv)")
    nic = _find(server, iface)
    try:
        memory = _reserve_memory(server)
        needs_iommu = False if goes_without_iommu(server, config.test_iface_dpdk_driv) else None
        server.pci.bind(nic.address, config.test_iface_dpdk_driv, allowed=config.bind_in_use, needs_iommu=needs_iommu)
    except ConnectError:
        raise
    except TestbedError as error:
        asked = f"test_iface_dpdk_driv = {config.test_iface_dpdk_driv}"
        raise TestbedError(f"{error} ({asked} in section {server.name} asks for it)") from None
    assert config.moongen_dir
    path, content = config_file(server), nic_config(nic, config.moongen_dir, memory)
    if server.transport.read(path) != content:
        server.note("file", path=path)
        server.transport.write(path, content)
    return nic


def kernel_interface(server: Server, iface: str) -> None:
    """Have the kernel's driver drive the test NIC, where the configuration names it and its interface is not there.

    Raises:
        TestbedError: it cannot be bound to that driver; see :meth:`autotest.network.pci.PciDevices.bind`.
    """
    config = server.config
    if iface != config.test_iface or not (config.test_iface_addr and config.test_iface_driv):
        return
    if server.links.show(iface) is None:
        server.pci.bind(config.test_iface_addr, config.test_iface_driv, allowed=config.bind_in_use)
        server.pci.interface_of(config.test_iface_addr)


def config_file(server: Server) -> str:
    """Where the file is that :func:`make_nic_ready` writes for a NIC of DPDK."""
    return server.state_file(f"nic-{server.name}.lua")


def nic_of(server: Server) -> DpdkNic | None:
    """The NIC that was made ready for MoonGen; None where none was."""
    found = _GIVEN.match(server.transport.read(config_file(server)) or "")
    return DpdkNic(found[1], found[2]) if found else None


def _find(server: Server, iface: str | None) -> DpdkNic:
    """The test NIC, by the configured PCI address, else by its interface, else by its MAC address.

    In a guest, where QEMU gives the addresses, the interface goes first: it was found by its MAC address.
    """
    config = server.config
    devices = server.pci.devices()
    named = next((device for device in devices if iface and iface in device.interfaces), None)
    if named and iface and isinstance(config, GuestConfig):
        if config.test_iface_addr not in (None, named.address):
            log.info("%s: %s is at %s, not at test_iface_addr %s", server.name, iface, named.address, config.test_iface_addr)
        return DpdkNic(named.address, named.interfaces[iface])
    mac = (config.test_iface_mac or "").lower()
    if config.test_iface_addr:
        device = server.pci.require(config.test_iface_addr, mac or None)
        if named and named.address != device.address:
            raise TestbedError(
                f"{server.name}: test_iface {iface} is {named.address}, not test_iface_addr {device.address}: correct one of them"
            )
        return DpdkNic(device.address, mac)
    if named and iface:
        found = named.interfaces[iface]
        if mac and found != mac:
            raise TestbedError(f"{server.name}: test_iface {iface} has the MAC address {found}, not test_iface_mac {mac}")
        return DpdkNic(named.address, found)
    return _by_mac(server, devices, mac)


def _by_mac(server: Server, devices: list[PciDevice], mac: str) -> DpdkNic:
    found = [device.address for device in devices if mac in device.interfaces.values()]
    if len(found) == 1:
        return DpdkNic(found[0], mac)
    if not found and (ready := nic_of(server)):  # its interface went when it was bound
        return ready
    driver = server.config.test_iface_dpdk_driv
    what = f"{', '.join(found)} have all" if found else "no PCI device has"
    raise TestbedError(
        f"{server.name}: test_iface_dpdk_driv {driver} needs the PCI address of the NIC, but test_iface_addr is missing, "
        f"no PCI device has the interface {server.config.test_iface}, and {what} the MAC address {mac or 'test_iface_mac'}: "
        f"set test_iface_addr"
    )


def goes_without_iommu(server: Server, driver: str) -> bool:
    """Whether vfio was loaded to give devices away without an IOMMU, as in a guest, where QEMU seldom emulates one."""
    return is_vfio(driver) and server.run(["cat", _NO_IOMMU], check=False).stdout.strip() in ("Y", "1")


def _reserve_memory(server: Server) -> list[int]:
    """Have enough huge pages free on each NUMA node; returns how many MiB MoonGen is to take of each."""
    state = server.hugepages.state()
    for node, counts in state.of_nodes.items() or [(None, state.counts)]:
        free = sum(size * counts[size].free for size in {*state.mounts.values()} & counts.keys())
        if free < MEMORY * 1024:
            server.hugepages.mount()
            server.hugepages.require(MEMORY, node)
    nodes = state.of_nodes or {0: state.counts}
    return [MEMORY if node in nodes else 0 for node in range(max(nodes) + 1)]


# -- what MoonGen says of it -------------------------------------------------------------------------------


def require_nic(server: Server, nic: DpdkNic, output: str, failed: bool = False) -> None:
    """Look in MoonGen's output whether port 0 is the NIC. A program that failed may have done so before it could say.

    Raises:
        TrafficError: it is another one, there is none, or the output does not say; with what it wrote last.
    """
    output = _COLOUR.sub("", output)
    count = _FOUND.search(output)
    if failed and count is None:
        return
    if count and int(count[1]) == 0:
        raise TrafficError(
            f"{server.name}: MoonGen finds no NIC that it can drive at {nic.address}: its DPDK has no driver for that model, or "
            f"cannot use {server.config.test_iface_dpdk_driv}:\n{_tail(output)}"
        )
    macs = {int(number): mac.lower() for number, mac in _DEVICE.findall(output)}
    if PORT not in macs:
        raise TrafficError(f"{server.name}: MoonGen does not say which NIC port {PORT} is:\n{_tail(output)}")
    if nic.mac and macs[PORT] != nic.mac:
        raise TrafficError(
            f"{server.name}: port {PORT} of MoonGen is the NIC with the MAC address {macs[PORT]}, but {nic.address} should have "
            f"{nic.mac}: nothing is measured with another NIC; correct test_iface_addr or test_iface_mac"
        )


def _tail(output: str) -> str:
    return "\n".join(output.splitlines()[-15:])
