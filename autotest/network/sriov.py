"""Virtual functions of a PCI device (SR-IOV): made on request, removed at the end. Those that are there are not ours to use.

See https://docs.kernel.org/PCI/pci-iov-howto.html. A new number is only taken after 0. New ones are left without drivers,
whatever ``sriov_drivers_autoprobe`` says: who wants one binds it.
"""

from __future__ import annotations

import json

from autotest.errors import TestbedError
from autotest.network.pci_device import PciDevice
from autotest.network.pci_sysfs import LOOK, PciSysfs
from autotest.remote.transport import Note


def make(sysfs: PciSysfs, device: PciDevice, count: int, note: Note) -> list[str]:
    """See :meth:`autotest.network.pci.PciDevices.set_virtual_functions`."""
    where = f"{sysfs.name}: {device.address}"
    if device.sriov_numvfs:
        raise TestbedError(f"{where} {already_there(device)}: {how_to_remove(device)}")
    if not device.sriov_totalvfs:
        raise TestbedError(f"{where} can have no virtual functions: switch SR-IOV on in the firmware's settings, if it has it")
    if not 0 < count <= device.sriov_totalvfs:
        raise TestbedError(f"{where} can have 1 to {device.sriov_totalvfs} virtual functions, not {count}")
    if device.driver is None:
        raise TestbedError(f"{where} has no driver, which it needs to make virtual functions")
    autoprobe = "" if device.sriov_drivers_autoprobe is None else str(int(device.sriov_drivers_autoprobe))
    note("virtual-functions", name=device.address, count=str(count), autoprobe=autoprobe)
    answers = sysfs.ask({"virtual_functions": {"address": device.address, "count": count}, **LOOK}, sudo=True)
    made = sysfs.bus(answers).devices[device.address]
    if made.sriov_numvfs != count or len(made.virtual_functions) != count:
        raise TestbedError(f"{where}: {count} virtual functions were asked for, there are {len(made.virtual_functions)}")
    return list(made.virtual_functions)


def already_there(device: PciDevice) -> str:
    """What is wrong where it has virtual functions: they are somebody's, who may use them."""
    return f"has {device.sriov_numvfs} virtual functions already, which autotest did not make for this test"


def how_to_remove(device: PciDevice) -> str:
    """What the user can do about them."""
    return (
        "remove them: autotest teardown-network where it made them, else as root "
        f"(echo 0 > /sys/bus/pci/devices/{device.address}/sriov_numvfs)"
    )


def remove(sysfs: PciSysfs, address: str, count: int, autoprobe: str) -> bool:
    """See :meth:`autotest.network.pci.PciDevices.remove_virtual_functions`."""
    device = sysfs.look().devices.get(address)
    if device is None:
        return False
    done = False
    if device.sriov_numvfs == count:
        answers = sysfs.ask({"virtual_functions": {"address": address, "count": 0}}, sudo=True)
        sysfs.refuse_holders(address, sysfs.holders(answers["virtual_functions"].get("holders")))
        done = True
    if autoprobe == "1" and device.sriov_drivers_autoprobe is False:  # making them was cut short
        sysfs.ask({"store": {"path": f"sys/bus/pci/devices/{address}/sriov_drivers_autoprobe", "value": "1"}}, sudo=True)
        done = True
    return done


def set_mac(sysfs: PciSysfs, device: PciDevice, number: int, mac: str, note: Note) -> None:
    """See :meth:`autotest.network.pci.PciDevices.set_function_mac`."""
    where = f"{sysfs.name}: {device.address}"
    if not 0 <= number < device.sriov_numvfs:
        raise TestbedError(f"{where} has no virtual function {number}, it has {device.sriov_numvfs}")
    if not device.interfaces:
        raise TestbedError(f"{where} has no network interface through which its virtual functions get a MAC address")
    interface = next(iter(device.interfaces))
    before = _mac(sysfs, interface, number)
    if before == mac.lower():
        return
    note("function-mac", name=device.address, number=str(number), mac=mac.lower(), before=before)
    _set_mac(sysfs, interface, number, mac)


def restore_mac(sysfs: PciSysfs, device: PciDevice, number: int, mac: str, before: str) -> bool:
    """See :meth:`autotest.network.pci.PciDevices.restore_function_mac`."""
    if not number < device.sriov_numvfs or not device.interfaces:
        return False
    interface = next(iter(device.interfaces))
    if _mac(sysfs, interface, number) != mac:
        return False
    _set_mac(sysfs, interface, number, before)
    return True


def _mac(sysfs: PciSysfs, interface: str, number: int) -> str:
    printed = sysfs.machine.run(["ip", "-json", "link", "show", "dev", interface]).stdout
    try:
        functions = json.loads(printed)[0]["vfinfo_list"]
        found = next(each for each in functions if each["vf"] == number)
        return str(found["mac"] if "mac" in found else found["address"]).lower()  # the older name, until iproute2 4.19
    except (ValueError, LookupError, TypeError, StopIteration, RecursionError):
        what = f"ip does not tell of virtual function {number} of {interface}: {printed[:200]!r}"
        raise TestbedError(f"{sysfs.name}: {what}") from None


def _set_mac(sysfs: PciSysfs, interface: str, number: int, mac: str) -> None:
    sysfs.machine.run(["ip", "link", "set", "dev", interface, "vf", str(number), "mac", mac], sudo=True)
