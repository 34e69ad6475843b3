"""The host: networks for the guests, and the guests that run on it."""

from __future__ import annotations

import logging
import posixpath
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from autotest.config.guests import name_of, nth_guest, number_of
from autotest.config.testbed import HostConfig, Testbed
from autotest.errors import TestbedError
from autotest.interfaces.kind import InterfaceKind
from autotest.qemu import tsc
from autotest.remote.transport import Transport
from autotest.run.journal import Journal
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.guest import GuestSettings
from autotest.servers.guests import Guests
from autotest.servers.threads import available_cpus
from autotest.servers.virtual_machine import VirtualMachine

log = logging.getLogger(__name__)

_TSC_KHZ = re.compile(r"[1-9][0-9]{3,8}")  # 1 MHz to 1 THz
# A session leaves its files until the next of its name begins.
_GUESTS = 'cd -- "$1" && for file in guest*.pid; do if [ -e "$file" ]; then printf "%s\\n" "${file%.pid}"; fi; done'


class Host(DeviceUnderTest):
    """The machine that runs the guests."""

    config: HostConfig

    def __init__(self, testbed: Testbed, transport: Transport | None = None, journal: Journal | None = None) -> None:
        super().__init__("host", testbed.host, transport, journal)
        self.testbed = testbed
        self.functions: tuple[str, ...] = ()
        """PCI addresses of the virtual functions that were made for the guests, where some were."""
        self.lock = threading.RLock()
        """Who changes the host holds it, where several guests boot at the same time."""
        self.guests = Guests(self)
        self._machines: dict[int, VirtualMachine] = {}

    # -- networks ------------------------------------------------------------------------------------------

    def admin_network_up(self) -> None:
        """The bridge over which the guests are reached; each brings its own tap."""
        config = self.config
        assert config.admin_bridge
        self.links.add_bridge(config.admin_bridge, config.admin_bridge_ip_net, keeps_mac=True)

    @contextmanager
    def admin_network(self) -> Iterator[None]:
        """The admin network, as long as the context lasts."""
        with self.journal.scope():
            self.admin_network_up()
            yield

    def check_admin_network(self) -> None:
        """Raises TestbedError when its bridge is gone or down."""
        assert self.config.admin_bridge
        self.links.require_up(self.config.admin_bridge)

    def test_nic(self) -> str:
        """The test NIC as an interface of the kernel; it is bound to the kernel's driver where it is not.

        Raises:
            TestbedError: there is none of that name, and no PCI address and driver to get it from.
        """
        config = self.config
        assert config.test_iface
        if config.test_iface_addr and config.test_iface_driv and self.links.show(config.test_iface) is None:
            self.pci.bind(config.test_iface_addr, config.test_iface_driv, allowed=config.bind_in_use, mac=config.test_iface_mac)
        return config.test_iface

    @contextmanager
    def test_network(self, kind: InterfaceKind, guest: bool) -> Iterator[None]:
        """The links of an interface kind, for guests or for the host itself, as long as the context lasts."""
        with self.journal.scope():
            try:
                kind.set_up(self, guest)
                yield
            finally:
                self.functions = ()

    def networks_up(self, settings: GuestSettings, count: int = 1) -> None:
        """The admin network, and all of one interface kind for so many guests."""
        self.admin_network_up()
        settings.interface.set_up(self, True)
        for number in range(1, count + 1):
            machine = self.machine(number)
            machine.one_of_several = count > 1
            machine.attach(settings)

    # -- the guests ----------------------------------------------------------------------------------------

    def machine(self, number: int) -> VirtualMachine:
        """The guest of that number, from 1, whether it runs or not.

        Raises:
            TestbedError: the configuration's values cannot be counted up so far.
        """
        if number not in self._machines:
            try:
                testbed = nth_guest(self.testbed, number)
            except ValueError as error:
                raise TestbedError(f"{name_of(number)}: {error}") from None
            self._machines[number] = VirtualMachine(self, number, testbed)
        return self._machines[number]

    def named_machine(self, name: str) -> VirtualMachine:
        """The guest of that name, like ``guest2``. Raises TestbedError where no guest is called so."""
        number = number_of(name)
        if number is None:
            raise TestbedError(f"{self.name}: no guest is called {name!r}")
        return self.machine(number)

    def running_machines(self) -> list[VirtualMachine]:
        """The guests of which there is a QEMU of ours, whoever started it."""
        left = self.transport.outside.run(["sh", "-c", _GUESTS, "sh", self.state_dir]).stdout.split()
        machines = [self.machine(number) for number in sorted(filter(None, map(number_of, left)))]
        return [machine for machine in machines if machine.is_running()]

    def guest_is_running(self) -> bool:
        """Whether there is a QEMU of ours."""
        return bool(self.running_machines())

    def kill_guest(self) -> list[str]:
        """End all guests in order; returns the names of those that there were."""
        return [machine.name for machine in self.running_machines() if machine.kill()]

    @cached_property
    def cpus(self) -> tuple[int, ...]:
        """The CPUs on which it may run threads."""
        return available_cpus(self)

    def tsc_khz(self) -> int:
        """The rate of the host's time stamp counter in kHz, remembered there until its next boot."""
        memory = posixpath.join(self.memory_dir, "tsc-khz")
        known = (self.transport.read(memory) or "").strip()
        if not _TSC_KHZ.fullmatch(known):
            # -I: the folder in which it runs may hold a file with the name of a module.
            known = self.run(["python3", "-I", "-"], input=Path(tsc.__file__).read_text()).stdout.strip()
            if not _TSC_KHZ.fullmatch(known):
                raise TestbedError(f"{self.name}: the rate of its time stamp counter cannot be {known[:100]!r} kHz")
            self.transport.write(memory, f"{known}\n")
        return int(known)

    def close(self) -> None:
        for machine in self._machines.values():
            machine.guest.close()
        super().close()
