"""A kernel's PCI bus in a folder: sysfs files that react to what is written into them as Linux's do, failures included.

Linux: drivers/pci/pci-driver.c (pci_device_can_probe), drivers/base/bus.c (drivers_probe, unbind), drivers/pci/iov.c.
:class:`FakeMachine` is a transport to a machine that has it; there this very file runs behind what autotest sends, in the
same process, and takes the place of its ``kernel_takes``, ``modprobe`` and ``_output``.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

EMPTY = {"addresses": "[]", "routes": "[]", "routes6": "[]", "connections": ""}


class FakeKernel:
    """The folder, and what is written into it. ``kernel.json`` in it says what no sysfs tells."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.pci = self.root / "sys/bus/pci"
        self.net = self.root / "sys/class/net"

    # -- making it -----------------------------------------------------------------------------------------

    def create(self) -> FakeKernel:
        for folder in ("devices", "drivers"):
            (self.pci / folder).mkdir(parents=True)
        for folder in ("sys/class/net", "sys/class/block", "sys/kernel/iommu_groups", "proc", "dev/vfio"):
            (self.root / folder).mkdir(parents=True)
        (self.pci / "drivers_autoprobe").write_text("1\n")
        self.set(
            drivers={}, modules=[], blocks=[], refused={}, inert=[], late={}, names={}, network=EMPTY, modprobe_sees=[], says=""
        )
        return self

    @property
    def known(self) -> dict[str, Any]:
        return json.loads((self.root / "kernel.json").read_text())

    def set(self, **values: Any) -> None:
        path = self.root / "kernel.json"
        before = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**before, **values}))

    def module(self, driver: str, takes: str = "", net: bool = False, loaded: bool = True) -> None:
        """A driver for devices with that id; one that makes a network interface of each."""
        self.set(drivers={**self.known["drivers"], driver: {"takes": takes, "net": net}})
        if loaded:
            self.register(driver)

    def register(self, driver: str) -> None:
        """Its module is loaded, and has taken no device yet."""
        (self.pci / "drivers" / driver).mkdir(exist_ok=True)
        for name in ("bind", "unbind"):
            (self.pci / "drivers" / driver / name).touch()

    def device(
        self, address: str, ids: str = "8086:10d3", group: int | None = None, driver: str = "", code: str = "0x020000",
        vfs: int = 0,
    ) -> Path:  # fmt: skip
        path = self.root / "sys/devices/pci0000:00" / address
        path.mkdir(parents=True)
        vendor, device = ids.split(":")
        files = {"vendor": f"0x{vendor}", "device": f"0x{device}", "class": code, "driver_override": "(null)", "numa_node": "-1"}
        if vfs:
            files |= {"sriov_totalvfs": str(vfs), "sriov_numvfs": "0", "sriov_drivers_autoprobe": "1"}
        for name, value in files.items():
            (path / name).write_text(value + "\n")
        (self.pci / "devices" / address).symlink_to(path)
        if group is not None:
            folder = self.root / f"sys/kernel/iommu_groups/{group}/devices"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / address).symlink_to(path)
            (path / "iommu_group").symlink_to(folder.parent)
        if driver:
            self.attach(address, driver)
        return path

    def process(self, pid: int, command: str, *opened: str) -> None:
        folder = self.root / f"proc/{pid}/fd"
        folder.mkdir(parents=True)
        (folder.parent / "cmdline").write_text(command.replace(" ", "\0") + "\0")
        for number, path in enumerate(opened):
            (folder / str(number)).symlink_to(path)

    def upper(self, name: str, *lowers: str, bridge: bool = False) -> None:
        """An interface on top of others."""
        self._interface(self.root / "sys/devices/virtual/net" / name, "02:00:00:00:00:99")
        if bridge:
            (self.net / name / "bridge").mkdir()
        for lower in lowers:
            (self.net / lower / f"upper_{name}").symlink_to(self.net / name)
            if bridge:
                (self.net / lower / "master").symlink_to(self.net / name)

    def state(self) -> dict[str, str]:
        """All files and links of sysfs, for comparing."""
        found = {}
        for folder, names, files in os.walk(self.root / "sys"):
            for name in (*names, *files):
                path = Path(folder, name)
                content = path.read_text().strip() if path.is_file() and not path.is_symlink() else ""
                found[str(path.relative_to(self.root))] = os.readlink(path) if path.is_symlink() else content
        return found

    def driver_of(self, address: str) -> str:
        link = self.pci / "devices" / address / "driver"
        return os.path.basename(os.readlink(link)) if link.is_symlink() else ""

    def text(self, address: str, name: str) -> str:
        return (self.pci / "devices" / address / name).read_text().strip()

    # -- what the kernel does ------------------------------------------------------------------------------

    def takes(self, path: str, text: str) -> None:
        name, folder = os.path.basename(path), Path(path).parent
        value = text.strip()
        if name == "unbind":
            self._unbind(value)
        elif name == "bind":
            self._bind(folder.name, value)
        elif name == "driver_override":
            (folder / name).write_text((value or "(null)") + "\n")
        elif name == "sriov_numvfs":
            self._set_functions(folder.name, int(value))
        else:
            assert (folder / name).exists(), path
            (folder / name).write_text(value + "\n")

    def _unbind(self, address: str) -> None:
        if address in self.known["blocks"]:
            time.sleep(4)  # longer than anybody waits for it here
            raise OSError(errno.EIO, "ended by the test")
        path = (self.pci / "devices" / address).resolve()
        (path / "driver").unlink()
        for name in os.listdir(self.net):
            if (self.net / name).resolve().is_relative_to(path / "net"):
                (self.net / name).unlink()
        for name in ("net", "uio"):
            shutil.rmtree(path / name, ignore_errors=True)

    def _bind(self, driver: str, address: str) -> None:
        known = self.known
        with open(self.root / "dev/kmsg", "a") as log:
            log.write(known["says"])
        if address in known["refused"]:
            raise OSError(known["refused"][address], "refused")
        if self.driver_of(address) or not self._matches(driver, address):
            raise OSError(errno.ENODEV, "it is not for this device")
        if address not in known["inert"]:
            self.attach(address, driver)

    def _matches(self, driver: str, address: str) -> bool:
        physical = self.pci / "devices" / address / "physfn"
        override = self.text(address, "driver_override")
        if override != "(null)":
            return driver == override
        if physical.exists() and (physical / "sriov_drivers_autoprobe").read_text().strip() == "0":
            return False
        ids = f"{self.text(address, 'vendor')[2:]}:{self.text(address, 'device')[2:]}"
        return bool(self.known["drivers"][driver]["takes"] == ids)

    def probe(self, address: str) -> None:
        """Give it the driver that takes it, if one does."""
        for driver in sorted(os.listdir(self.pci / "drivers")):
            if not self.driver_of(address) and self._matches(driver, address):
                self.attach(address, driver)

    def attach(self, address: str, driver: str) -> None:
        path = (self.pci / "devices" / address).resolve()
        (path / "driver").symlink_to(self.pci / "drivers" / driver)
        if driver in ("igb_uio", "uio_pci_generic"):
            (path / "uio/uio0").mkdir(parents=True)
        if self.known["drivers"][driver]["net"]:
            late = self.known["late"].get(address, 0)
            if not late:
                self._new_interface(address)
            elif os.fork() == 0:
                os.setsid()
                time.sleep(late)
                self._new_interface(address)
                os._exit(0)

    def _new_interface(self, address: str) -> None:
        names = set(os.listdir(self.net))
        name = self.known["names"].get(address) or next(
            name for name in (f"eth{number}" for number in range(99)) if name not in names
        )
        path = (self.pci / "devices" / address).resolve()
        self._interface(path / "net" / name, f"52:54:00:00:{address[5:7]}:{address[8:10]}")
        (path / "net" / name / "device").symlink_to(path)

    def _interface(self, path: Path, mac: str) -> None:
        new = path.with_name("." + path.name)
        new.mkdir(parents=True)
        for name, value in {"address": mac, "addr_assign_type": "0", "flags": "0x1002", "mtu": "1500"}.items():
            (new / name).write_text(value + "\n")
        new.rename(path)
        (self.net / path.name).symlink_to(path)

    def _set_functions(self, address: str, count: int) -> None:
        path = (self.pci / "devices" / address).resolve()
        before = int(self.text(address, "sriov_numvfs"))
        if before and count:
            raise OSError(errno.EBUSY, "there are some")
        for number in range(before):
            function = f"{address[:-1]}{number + 1}"
            if function in self.known["blocks"]:
                time.sleep(4)  # longer than anybody waits for it here
                raise OSError(errno.EIO, "ended by the test")
            shutil.rmtree((self.pci / "devices" / function).resolve())
            (self.pci / "devices" / function).unlink()
            (path / f"virtfn{number}").unlink()
            for group in (self.root / "sys/kernel/iommu_groups").iterdir():
                if (group / "devices" / function).is_symlink():
                    shutil.rmtree(group)
        (path / "sriov_numvfs").write_text(f"{count}\n")
        for number in range(count):
            function = f"{address[:-1]}{number + 1}"
            created = self.device(function, "8086:10ed", group=100 + number, code=self.text(address, "class"))
            (path / f"virtfn{number}").symlink_to(created)
            (created / "physfn").symlink_to(path)
            if self.text(address, "sriov_drivers_autoprobe") == "1":
                self.probe(function)

    def load(self, driver: str) -> str:
        switch = (self.pci / "drivers_autoprobe").read_text().strip()
        self.set(modprobe_sees=[*self.known["modprobe_sees"], [driver, switch]])
        if driver in self.known["modules"]:
            return ""
        if driver not in self.known["drivers"]:
            return f"modprobe: FATAL: Module {driver} not found in directory /lib/modules/6.1.0"
        self.register(driver)
        if switch == "1":
            for address in os.listdir(self.pci / "devices"):
                self.probe(address)
        return ""

    def ip_link_set(self, arguments: list[str]) -> int:
        """What ``ip link set`` does; returns its exit code."""
        assert arguments[0] == "dev"
        name, *words = arguments[1:]
        path = self.net / name
        if not path.exists():
            return 1
        if words[0] in ("up", "down"):
            (path / "flags").write_text("0x1003\n" if words[0] == "up" else "0x1002\n")
        elif words[0] in ("address", "mtu"):
            (path / words[0]).write_text(words[1] + "\n")
        elif words[0] == "master":
            (path / "master").symlink_to(self.net / words[1])
            (path / f"upper_{words[1]}").symlink_to(self.net / words[1])
        elif words[0] == "name":
            assert not (self.net / words[1]).exists()
            place = path.resolve()
            path.unlink()
            place.rename(place.with_name(words[1]))
            (self.net / words[1]).symlink_to(place.with_name(words[1]))
        elif words[0] == "vf":
            macs = self.known.get("macs", {})
            self.set(macs={**macs, words[1]: words[3]})
        return 0


def inside_of_what_is_sent(root: str, names: dict[str, Any]) -> None:
    """Take the kernel's place in the program that autotest has sent."""
    kernel = FakeKernel(root)

    def output(*command: str) -> str:
        network = kernel.known["network"]
        if command[0] == "ss":
            return str(network["connections"])
        return str(network["addresses" if "address" in command else "routes6" if "-6" in command else "routes"])

    names.update(kernel_takes=kernel.takes, modprobe=kernel.load, _output=output, _login=lambda: kernel.known.get("login"))
    (kernel.root / "proc/net").mkdir(exist_ok=True)
    (kernel.root / "proc/net/if_inet6").touch()


if __name__ != "__main__":  # in the tests, which import this file; not where it is sent
    from collections.abc import Sequence

    from autotest.remote.local import LocalTransport
    from autotest.remote.transport import Result

    class FakeMachine(LocalTransport):
        """A machine with such a kernel. Nothing of this one is touched.

        Attributes:
            commands: of each command that was run there its arguments.
            before: called with the functions that are asked for before they are done.
        """

        def __init__(self, kernel: FakeKernel) -> None:
            super().__init__("host")
            self.kernel = kernel
            self.commands: list[list[str]] = []
            self.shorter: dict[str, float] = {}
            self.before: Any = lambda asked: None

        @property
        def is_root(self) -> bool:
            return True

        def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
            self.commands.append(list(command))
            if command[:3] == ["ip", "link", "set"]:
                return Result(tuple(command), self.kernel.ip_link_set(list(command[3:])), "", "")
            if command[0] == "ip":
                functions = [{"vf": int(number), "address": mac} for number, mac in self.kernel.known.get("macs", {}).items()]
                return Result(tuple(command), 0, json.dumps([{"vfinfo_list": functions}]), "")
            assert command[:3] == ["python3", "-I", "-"] and data, command
            self.before(list(json.loads(command[3])["asked"]))
            end = b'if __name__ == "__main__":'
            names = {name: repr(value) for name, value in self.shorter.items()}
            here = Path(__file__).read_bytes() + f"\ninside_of_what_is_sent({str(self.kernel.root)!r}, globals())\n".encode()
            here += "".join(f"{name} = {value}\n" for name, value in names.items()).encode()
            here = here.replace(b"from __future__ import annotations\n", b"")
            assert data.count(end) == 1
            return super()._execute(command, [sys.executable, "-S", *argv[1:]], data.replace(end, here + end), timeout)
