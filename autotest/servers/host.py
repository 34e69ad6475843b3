"""The host: networks for the guest, and the guest's life."""

from __future__ import annotations

import ipaddress
import logging
import posixpath
import re
import shlex
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from autotest.config.testbed import GuestConfig, HostConfig, Testbed
from autotest.errors import ConnectError, QemuError, TestbedError, WaitTimeout
from autotest.interfaces.kind import (
    MACVTAP_FD,
    SOCKETS,
    USER_SPACE_DRIVER,
    InterfaceKind,
    InterfaceOptions,
)
from autotest.qemu import accelerator, qmp, tsc
from autotest.qemu.console import around_panic, panic
from autotest.remote.ssh_config import resolve
from autotest.remote.tmux import Session, SessionError
from autotest.remote.transport import Transport
from autotest.remote.wait import wait_for
from autotest.run.journal import Journal
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.facts import read_facts
from autotest.servers.guest import Guest, GuestSettings, qemu_command_line
from autotest.servers.placement import (
    GUEST_ROLES,
    configured,
    place_guest,
    require_placed,
)
from autotest.servers.server import takes_logins
from autotest.servers.threads import Thread, record

log = logging.getLogger(__name__)

_QEMU_START_TIMEOUT = 60.0  # seconds until QEMU answers on QMP; it pins all memory first where a NIC is passed through
_CHECK_TIMEOUT = 3.0  # seconds in which a guest that works takes a login
_POWERDOWN_TIMEOUT = 60.0  # seconds that a guest with a disk of its own gets to shut down
_CONSOLE_LINES = 30  # of the console in an error
_SHORTEST_TRY, _LONGEST_TRY = 0.1, 5.0  # seconds for one try to connect to a booting guest
# net/vhost_net of QEMU says so and goes on: what is measured then is another interface.
_NO_VHOST = re.compile(r"unable to start vhost net.*falling back on userspace virtio.*")
_TSC_KHZ = re.compile(r"[1-9][0-9]{3,8}")  # 1 MHz to 1 THz
_OPENER = """\
import os, sys
device, first, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + count):
    opened = os.open(device, os.O_RDWR)
    if opened == number:
        os.set_inheritable(number, True)
    else:
        os.dup2(opened, number)
        os.close(opened)
os.execvp(sys.argv[4], sys.argv[4:])
"""  # each opening of a macvtap is a queue of it


class Host(DeviceUnderTest):
    """The machine that runs the guests."""

    config: HostConfig

    def __init__(
        self, testbed: Testbed, transport: Transport | None = None, journal: Journal | None = None
    ) -> None:
        super().__init__("host", testbed.host, transport, journal)
        self.testbed = testbed
        self.passed_through: str | None = None
        """PCI address of the virtual function that was made for the guest, where one was."""
        self.placed: list[Thread] = []
        """The threads that were put on CPUs or given a priority, of the guest that runs and the process that it depends on."""
        self.switch_facts: dict[str, str] = {}
        """The process between wire and guest: its command line and, where it tells, its version."""
        self.guest_facts: dict[str, Any] = {}
        """What runs the guest, and since it booted what it is, for the record of a trial; empty while none of ours runs."""

    # -- networks ------------------------------------------------------------------------------------------

    def admin_network_up(self) -> None:
        """The bridge and tap over which the guest is reached. The guest's neighbour entry spares lost ARP tries."""
        config = self.config
        assert config.admin_bridge and config.admin_tap
        self.links.add_bridge(config.admin_bridge, config.admin_bridge_ip_net)
        address, mac = self._guest_admin_address(), self.testbed.guest.admin_iface_mac
        if address and mac:
            self.links.note_neighbour(config.admin_bridge, address, mac)
        self.links.add_tap(config.admin_tap, config.admin_bridge)
        if address and mac:
            self.links.set_neighbour(config.admin_bridge, address, mac)

    def _guest_admin_address(self) -> str | None:
        """The guest's address, where the configuration names one of the admin network."""
        if not self.config.admin_bridge_ip_net:
            return None
        try:
            address = ipaddress.ip_address(resolve(self.testbed.guest.fqdn, self.testbed.guest.ssh_config).host)
        except ValueError:
            return None
        network = ipaddress.ip_interface(self.config.admin_bridge_ip_net).network
        return str(address) if address in network else None

    @contextmanager
    def admin_network(self) -> Iterator[None]:
        """The admin network, as long as the context lasts."""
        with self.journal.scope():
            self.admin_network_up()
            yield

    def check_admin_network(self) -> None:
        """Raises TestbedError when one of its links is gone or down."""
        assert self.config.admin_bridge and self.config.admin_tap
        for link in (self.config.admin_bridge, self.config.admin_tap):
            self.links.require_up(link)

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
                self.passed_through = None

    def networks_up(self, kind: InterfaceKind, options: InterfaceOptions = InterfaceOptions()) -> None:
        """The admin network, and all of one interface kind for a guest."""
        self.admin_network_up()
        kind.set_up(self, True)
        kind.attach(self, options)

    # -- the guest -----------------------------------------------------------------------------------------

    @property
    def guest_session(self) -> Session:
        return self.session("guest")

    @property
    def qmp_socket(self) -> str:
        return self.state_file("guest.qmp")

    def guest_is_running(self) -> bool:
        """Whether there is a QEMU of ours."""
        return self.guest_session.is_running()

    def run_guest(self, settings: GuestSettings, host: HostConfig, guest: GuestConfig) -> None:
        """Start QEMU and wait until it says that the guest runs. What it needs was looked at: :mod:`autotest.preflight`.

        Raises:
            QemuError: it did not start, or ended at once; with what it wrote.
            CommandError: there is no such program.
            TestbedError: there is no memory for the guest's huge pages.
        """
        program = settings.program(host)
        if self.passed_through:
            host = replace(host, test_iface_addr=self.passed_through)
        sockets: dict[str, Any] = {key: getattr(host, key) or self.state_file(name) for key, name in SOCKETS.items()}
        host = replace(host, **sockets)
        version = self.run([program, "--version"], sudo=True).stdout.splitlines()
        if guest.hugepages:
            self.hugepages.require(guest.memory)
        chosen = accelerator.choose(host.accelerator, self.transport, program, guest.kernel, self.memory_dir)
        command = qemu_command_line(
            host,
            guest,
            settings,
            program=program,
            accelerator=chosen,
            tsc_khz=self._tsc_khz() if chosen == "tcg" and guest.kernel else None,
            qmp_socket=self.qmp_socket,
            gdb_socket=self.state_file("guest.gdb") if settings.debug else None,
        ).render()
        self.guest_facts = {
            "accelerator": chosen,
            "qemu": program,
            "qemu version": version[0] if version else "",
            "root disk": self.run(["readlink", "-f", "--", host.root_disk_file or ""], sudo=True).stdout.strip(),
            "command line": shlex.join(command),
            **self.switch_facts,
        }
        with self._macvtap_opener(settings.interface.macvtap(host), settings.options.queues or 1) as opener:
            self._start_qemu([*opener, *command])
        self._place_guest(host, settings.options.vhost)
        if settings.debug:
            log.info("GDB server of the guest: target remote %s", self.state_file("guest.gdb"))

    def _start_qemu(self, command: list[str]) -> None:
        session = self.guest_session
        # QEMU itself replaces a QMP socket that is left from an earlier one.
        session.start(command, sudo=True, kind="guest", machine="guest")
        try:
            wait_for(lambda: self._guest_started(session), "QEMU to answer on QMP", _QEMU_START_TIMEOUT, 0.02)
        except WaitTimeout as error:
            raise QemuError(f"{self.name}: {error}:\n{session.tail(_CONSOLE_LINES)}") from None

    def _place_guest(self, host: HostConfig, vhost: bool) -> None:
        """Put QEMU's threads where the configuration wants them."""
        pid = self.guest_session.pid()
        if pid is not None and configured(host, GUEST_ROLES):
            with qmp.connect(self.transport, self.qmp_socket) as control:
                self.placed += place_guest(self, host, pid, control, vhost=vhost)
        if self.placed:
            self.guest_facts["placement"] = record(self.placed)

    def _tsc_khz(self) -> int:
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

    def _guest_started(self, session: Session) -> bool:
        self._raise_if_ended(session)
        return qmp.is_listening(self.transport, self.qmp_socket)

    def _raise_if_ended(self, session: Session) -> None:
        """Raises QemuError when QEMU has ended, or runs a kernel that gave up."""
        code = session.exit_code()
        console = session.output()
        if (found := _NO_VHOST.search(console)) is not None:
            raise QemuError(f"{self.name}: QEMU goes on without vhost: {found[0].strip()}")
        reason = panic(console)
        if code is None and not reason:
            session.require_life()
            return
        if reason:
            raise QemuError(f"{self.name}: the guest's kernel gave up: {reason}\n{around_panic(console, _CONSOLE_LINES)}")
        raise QemuError(f"{self.name}: QEMU ended with exit code {code}:\n{session.tail(_CONSOLE_LINES)}")

    def check_guest(self, guest: Guest) -> None:
        """Look after a guest with which something may be wrong.

        Raises:
            QemuError: as :meth:`require_running_guest` does.
            ConnectError: the guest takes no login any more.
        """
        self.require_running_guest()
        guest.close()
        try:
            guest.ping(_CHECK_TIMEOUT)
        except ConnectError as error:
            raise ConnectError(f"{error}; its console says:\n{self.guest_session.tail(_CONSOLE_LINES)}") from None

    def require_running_guest(self) -> None:
        """Without a word to the guest itself.

        Raises:
            QemuError: QEMU ended, hangs or was stopped, or the guest's kernel gave up; with lines of the console.
            SessionError: QEMU is gone.
            TestbedError: its threads are no longer where they were put.
        """
        session = self.guest_session
        self._raise_if_ended(session)
        if not qmp.is_listening(self.transport, self.qmp_socket):
            hint = ": its process is stopped" if session.state() == "T" else ""
            raise QemuError(f"{self.name}: QEMU does not answer{hint}\n{session.tail(_CONSOLE_LINES)}")
        require_placed(self, self.placed)

    def give_up_guest(self, guest: Guest) -> None:
        """End a guest that does not work; what was changed on it ends with it."""
        guest.close()
        self.journal.undo_machine(guest.name)

    @contextmanager
    def _macvtap_opener(self, name: str | None, queues: int) -> Iterator[list[str]]:
        """What goes in front of a command that gets the macvtap as open files, one for each queue; nothing without a macvtap.

        Where the kernel made no device file with the macvtap's number, there is one of ours until QEMU has opened it:
        in ``/dev`` and nowhere else, because device files elsewhere may not be opened.
        """
        if name is None:
            yield []
            return
        path, major, minor = self.links.macvtap_device(name)
        opener = ["python3", "-I", "-c", _OPENER]
        behind = [str(MACVTAP_FD), str(queues)]
        if self.run(["stat", "-c", "%t:%T", "--", path], check=False).stdout.strip() == f"{major:x}:{minor:x}":
            yield [*opener, path, *behind]
            return
        node = f"/dev/autotest-{name}"
        with self.journal.scope():
            self.note("file", path=node)
            self.run(["rm", "-f", "--", node], sudo=True)
            self.run(["mknod", "-m", "600", "--", node, "c", str(major), str(minor)], sudo=True)
            yield [*opener, node, *behind]

    def wait_for_guest(self, guest: Guest, timeout: float) -> float:
        """Wait until the guest takes a login; returns the seconds waited.

        Raises:
            QemuError: QEMU ended while the guest booted; with its console's and its own last lines.
            WaitTimeout: it still does not answer; with the console's last lines.
        """
        session = self.guest_session
        log.debug("waiting up to %g s for the guest's login", timeout)
        guest.close()  # a connection to an earlier guest would answer for this one
        start = time.monotonic()

        def answers() -> bool:
            self._raise_if_ended(session)
            # Packets lost while it boots are not waited for; but a guest far away gets ever longer tries.
            elapsed = time.monotonic() - start
            return takes_logins(guest, min(_LONGEST_TRY, max(_SHORTEST_TRY, elapsed / 20)))

        try:
            wait_for(answers, f"{guest.name}: an SSH login at {guest.config.fqdn}", timeout, 0.02)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; its console says:\n{session.tail(_CONSOLE_LINES)}") from None
        return time.monotonic() - start

    def kill_guest(self, hurry: bool = False) -> bool:
        """End the guest in order; returns whether there was one.

        A guest on a snapshot has nothing to save and is ended at once; any other may shut down first, in a hurry only
        for a short while.
        """
        session = self.guest_session
        # In a hurry a tmux server that hangs is not asked: without a process there is nothing to end in order.
        was_there = session.state() is not None if hurry else session.is_running()
        if was_there:
            try:
                with qmp.connect(self.transport, self.qmp_socket) as control:
                    if not self.config.root_disk_snapshot:
                        control.command("system_powerdown")
                        self._wait_for_powerdown(session, 3.0 if hurry else _POWERDOWN_TIMEOUT)
                    if session.exit_code() is None:
                        control.command("quit")
                session.wait(1.0 if hurry else 5.0)
            except (ConnectError, QemuError, SessionError, WaitTimeout) as error:
                log.debug("%s: QEMU does not end over QMP: %s", self.name, error)
        was_there = session.stop(hurry=hurry) or was_there
        self.guest_facts = {}
        self.placed = []
        self.switch_facts = {}
        sockets = [self.qmp_socket, self.state_file("guest.gdb")]
        self.transport.outside.run(["rm", "-f", "--", *sockets], sudo=True)
        return was_there

    def _find_nic_of(self, guest: Guest, settings: GuestSettings) -> None:
        """Find the guest's interface under test, and say which driver it has."""
        kind = settings.interface
        if kind.guest_driver == USER_SPACE_DRIVER:
            guest.nic = guest.config.test_iface  # a name only: no kernel has such an interface
            return
        mac = kind.dut_mac(settings.machine, self.testbed)
        assert mac
        driver = guest.find_nic(mac)
        self.guest_facts["driver"] = driver
        if kind.guest_driver not in (None, driver):
            log.warning("%s: the driver of %s is %s, not %s as usual", guest.name, guest.nic, driver or "unknown", kind.guest_driver)

    def _wait_for_powerdown(self, session: Session, timeout: float) -> None:
        try:
            session.wait(timeout)
        except WaitTimeout:
            log.warning("%s: the guest did not shut down within %g s", self.name, timeout)

    @contextmanager
    def running_guest(self, settings: GuestSettings, guest: Guest) -> Iterator[None]:
        """A guest that takes logins, as long as the context lasts."""
        if self.kill_guest():
            log.warning("%s: ended the guest that was running", self.name)
        with self.journal.scope():
            try:
                settings.interface.attach(self, settings.options)
                self.run_guest(settings, self.config, self.testbed.guest)
                seconds = self.wait_for_guest(guest, self.testbed.guest.boot_timeout)
                log.info("%s: login %.1f s after QEMU's start", guest.name, seconds)
                self.guest_facts |= read_facts(guest).record()
                self._find_nic_of(guest, settings)
                is_at_the_wire = settings.interface.guest_driver is None
                guest.far_end_sleeps = self.far_end_sleeps and is_at_the_wire
                yield
            finally:
                guest.nic = None
                guest.close()
