"""One guest as the host sees it: its QEMU, what it needs between that and the wire, and the way to a login on it."""

from __future__ import annotations

import ipaddress
import logging
import re
import shlex
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from autotest.config.guests import link_of, name_of
from autotest.config.testbed import HostConfig, Testbed
from autotest.errors import (
    ConnectError,
    QemuError,
    TestbedError,
    WaitTimeout,
)
from autotest.interfaces.kind import SOCKETS, USER_SPACE_DRIVER
from autotest.qemu import accelerator, qmp
from autotest.qemu.console import around_panic, panic
from autotest.remote.multiplexer import SessionError
from autotest.remote.ssh_config import resolve
from autotest.remote.tmux import Session
from autotest.remote.wait import give_up_if_told, wait_for
from autotest.servers.facts import read_facts
from autotest.servers.guest import Guest, GuestSettings, qemu_command_line
from autotest.servers.macvtap import macvtap_opener
from autotest.servers.placement import (
    GUEST_ROLES,
    configured,
    place_guest,
    require_placed,
)
from autotest.servers.server import takes_logins
from autotest.servers.threads import Thread, record

if TYPE_CHECKING:
    from autotest.servers.host import Host

log = logging.getLogger(__name__)

_QEMU_START_TIMEOUT = 60.0  # seconds until QEMU answers on QMP; it pins all memory first where a NIC is passed through
_CHECK_TIMEOUT = 3.0  # seconds in which a guest that works takes a login
_POWERDOWN_TIMEOUT = 60.0  # seconds that a guest with a disk of its own gets to shut down
_CONSOLE_LINES = 30  # of the console in an error
_SHORTEST_TRY, _LONGEST_TRY = 0.1, 5.0  # seconds for one try to connect to a booting guest
# net/vhost_net of QEMU says so and goes on: what is measured then is another interface.
_NO_VHOST = re.compile(r"unable to start vhost net.*falling back on userspace virtio.*")


class VirtualMachine:
    """A guest on the host.

    Attributes:
        host: where it runs.
        number: from 1.
        testbed: the configuration as this guest has it.
        guest: the guest itself, for whoever is logged in there.
        one_of_several: whether it was started as one of several guests.
        placed: the threads that were put on CPUs or given a priority, of QEMU and the process that it depends on.
        switch_facts: of the process between wire and guest: its command line and, where it tells, its version.
        facts: what runs the guest, and since it booted what it is, for the record of a trial; empty while it is not ours.
    """

    def __init__(self, host: Host, number: int, testbed: Testbed) -> None:
        self.host = host
        self.number = number
        self.name = name_of(number)
        self.testbed = testbed
        self.guest = Guest(self.name, testbed.guest, journal=host.journal)
        self.one_of_several = False
        self.placed: list[Thread] = []
        self.switch_facts: dict[str, str] = {}
        self.facts: dict[str, Any] = {}

    @property
    def config(self) -> HostConfig:
        """Section ``host`` as this guest has it."""
        return self.testbed.host

    @property
    def session(self) -> Session:
        """QEMU's."""
        return self.host.session(self.name)

    @property
    def qmp_socket(self) -> str:
        return self.host.state_file(f"{self.name}.qmp")

    def own_name(self, name: str) -> str:
        """The name of a session or a file that other guests have, too."""
        stem, dot, suffix = name.partition(".")
        return name if self.number == 1 else f"{stem}-{self.number}{dot}{suffix}"

    def socket(self, key: str) -> str:
        """The path of a socket between QEMU and another process; ``key`` is of section ``host``."""
        return getattr(self.config, key) or self.host.state_file(self.own_name(SOCKETS[key]))

    @property
    def nic_link(self) -> str:
        """The name of a link on the test NIC that is this guest's alone.

        Raises:
            TestbedError: it would be too long.
        """
        assert self.host.config.test_iface
        try:
            return link_of(self.host.config.test_iface, self.number)
        except ValueError as error:
            raise TestbedError(f"{self.host.name}: {error}") from None

    @property
    def nic_address(self) -> str:
        """The PCI address of the NIC, or the virtual function, that is passed through to it, or that its process has.

        Raises:
            TestbedError: there is none for it.
        """
        functions = self.host.functions
        if functions and self.number <= len(functions):
            return functions[self.number - 1]
        if functions or self.config.test_iface_addr is None:
            key = "test_iface_vfs" if functions else "guest_nics" if self.number > 1 else "test_iface_addr"
            raise TestbedError(f"{self.host.name}: {key} of [host] has no NIC for {self.name}")
        return self.config.test_iface_addr

    # -- its life --------------------------------------------------------------------------------------------

    def is_running(self) -> bool:
        """Whether there is a QEMU of ours for it."""
        return self.session.is_running()

    def boot(self, settings: GuestSettings) -> None:
        """Start it and wait until it takes logins; its interface under test is known then.

        Several may boot at once, each in a thread of its own.

        Raises:
            QemuError: QEMU did not start, or ended; with what it wrote.
            WaitTimeout: there is no login in time.
            TestbedError: something that it needs is not there.
        """
        with self.host.lock:
            give_up_if_told(f"{self.name}: its boot")  # another may have failed while this one waited for its turn
            self.placed, self.switch_facts, self.facts = [], {}, {}  # of a boot that failed before there was a QEMU to end
            self.attach(settings)
            self.start(settings)
        seconds = self.wait_for_login(self.testbed.guest.boot_timeout)
        log.info("%s: login %.1f s after QEMU's start", self.name, seconds)
        self.facts |= read_facts(self.guest).record()
        self._find_nic(settings)
        is_at_the_wire = settings.interface.guest_driver is None
        self.guest.far_end_sleeps = self.host.far_end_sleeps and is_at_the_wire

    def attach(self, settings: GuestSettings) -> None:
        """Its tap in the admin network, and what its interface under test needs."""
        self._join_admin_network()
        settings.interface.attach(self, settings.options)

    def _join_admin_network(self) -> None:
        """Its neighbour entry spares lost ARP tries."""
        host, config = self.host, self.config
        assert config.admin_bridge and config.admin_tap
        address, mac = self._admin_address(), self.testbed.guest.admin_iface_mac
        if address and mac:
            host.links.note_neighbour(config.admin_bridge, address, mac)
        host.links.add_tap(config.admin_tap, config.admin_bridge)
        if address and mac:
            host.links.set_neighbour(config.admin_bridge, address, mac)

    def _admin_address(self) -> str | None:
        """The guest's address, where the configuration names one of the admin network."""
        if not self.config.admin_bridge_ip_net:
            return None
        guest = self.testbed.guest
        try:
            address = ipaddress.ip_address(resolve(guest.fqdn, guest.ssh_config).host)
        except ValueError:
            return None
        network = ipaddress.ip_interface(self.config.admin_bridge_ip_net).network
        return str(address) if address in network else None

    def start(self, settings: GuestSettings) -> None:
        """Start QEMU and wait until it says that the guest runs. What it needs was looked at: :mod:`autotest.preflight`.

        Raises:
            QemuError: it did not start, or ended at once; with what it wrote.
            CommandError: there is no such program.
            TestbedError: there is no memory for the guest's huge pages.
        """
        config, guest, place = self.config, self.testbed.guest, self.host
        program = settings.program(config)
        version = place.run([program, "--version"], sudo=True).stdout.splitlines()
        if guest.hugepages:
            place.hugepages.require(guest.memory)
        chosen = accelerator.choose(config.accelerator, place.transport, program, guest.kernel, place.memory_dir)
        command = qemu_command_line(
            self._as_it_is(config),
            guest,
            settings,
            program=program,
            accelerator=chosen,
            tsc_khz=place.tsc_khz() if chosen == "tcg" and guest.kernel else None,
            qmp_socket=self.qmp_socket,
            gdb_socket=place.state_file(f"{self.name}.gdb") if settings.debug else None,
        ).render()
        self.facts = {
            "accelerator": chosen,
            "qemu": program,
            "qemu version": version[0] if version else "",
            "root disk": place.run(["readlink", "-f", "--", config.root_disk_file or ""], sudo=True).stdout.strip(),
            "command line": shlex.join(command),
            **self.switch_facts,
        }
        with macvtap_opener(place, settings.interface.macvtap(config), settings.options.queues or 1) as opener:
            self._start_qemu([*opener, *command])
        self._place(config, settings.options.vhost)
        if settings.debug:
            log.info("GDB server of the guest: target remote %s", place.state_file(f"{self.name}.gdb"))

    def _as_it_is(self, config: HostConfig) -> HostConfig:
        """Section ``host`` with what is known only now, or only of one of several."""
        sockets: dict[str, Any] = {key: self.socket(key) for key in SOCKETS}
        if self.host.functions:
            sockets["test_iface_addr"] = self.nic_address
        if self.one_of_several:  # they cannot all write to one disk
            sockets["root_disk_snapshot"] = True
        return replace(config, **sockets)

    def _start_qemu(self, command: list[str]) -> None:
        session = self.session
        # QEMU itself replaces a QMP socket that is left from an earlier one.
        session.start(command, sudo=True, kind="guest", machine=self.name)
        try:
            wait_for(self._is_started, "QEMU to answer on QMP", _QEMU_START_TIMEOUT, 0.02)
        except WaitTimeout as error:
            raise QemuError(f"{self.host.name}: {error}:\n{session.tail(_CONSOLE_LINES)}") from None

    def _place(self, config: HostConfig, vhost: bool) -> None:
        """Put QEMU's threads where the configuration wants them."""
        pid = self.session.pid()
        if pid is not None and configured(config, GUEST_ROLES):
            with qmp.connect(self.host.transport, self.qmp_socket) as control:
                self.placed += place_guest(self.host, config, pid, control, vhost=vhost, number=self.number)
        if self.placed:
            self.facts["placement"] = record(self.placed)

    def _is_started(self) -> bool:
        self._raise_if_ended()
        return qmp.is_listening(self.host.transport, self.qmp_socket)

    def wait_for_login(self, timeout: float) -> float:
        """Wait until the guest takes a login; returns the seconds waited.

        Raises:
            QemuError: QEMU ended while the guest booted; with its console's and its own last lines.
            WaitTimeout: it still does not answer; with the console's last lines.
        """
        guest = self.guest
        log.debug("waiting up to %g s for the login of %s", timeout, self.name)
        guest.close()  # a connection to an earlier guest would answer for this one
        start = time.monotonic()

        def answers() -> bool:
            self._raise_if_ended()
            # Packets lost while it boots are not waited for; but a guest far away gets ever longer tries.
            elapsed = time.monotonic() - start
            return takes_logins(guest, min(_LONGEST_TRY, max(_SHORTEST_TRY, elapsed / 20)))

        try:
            wait_for(answers, f"{guest.name}: an SSH login at {guest.config.fqdn}", timeout, 0.02)
        except WaitTimeout as error:
            raise WaitTimeout(f"{error}; its console says:\n{self.session.tail(_CONSOLE_LINES)}") from None
        return time.monotonic() - start

    def _find_nic(self, settings: GuestSettings) -> None:
        """Find the guest's interface under test, and say which driver it has."""
        kind, guest = settings.interface, self.guest
        if kind.guest_driver == USER_SPACE_DRIVER:
            guest.nic = guest.config.test_iface  # a name only: no kernel has such an interface
            return
        mac = kind.dut_mac(settings.machine, self.testbed)
        assert mac
        driver = guest.find_nic(mac)
        self.facts["driver"] = driver
        if kind.guest_driver not in (None, driver):
            log.warning(
                "%s: the driver of %s is %s, not %s as usual", guest.name, guest.nic, driver or "unknown", kind.guest_driver
            )

    # -- whether it works ------------------------------------------------------------------------------------

    def check(self, settings: GuestSettings) -> None:
        """Look after a guest with which something may be wrong.

        Raises:
            AutotestError: it, or what it depends on, does not work any more; the message names it.
        """
        try:
            settings.interface.check(self)
            self.require_running()
            if self.config.admin_tap:
                self.host.links.require_up(self.config.admin_tap)
            self.guest.close()
            self.guest.ping(_CHECK_TIMEOUT)
        except ConnectError as error:
            raise ConnectError(f"{error}; its console says:\n{self.session.tail(_CONSOLE_LINES)}") from None

    def require_running(self) -> None:
        """Without a word to the guest itself.

        Raises:
            QemuError: QEMU ended, hangs or was stopped, or the guest's kernel gave up; with lines of the console.
            SessionError: QEMU is gone.
            TestbedError: its threads are no longer where they were put.
        """
        session = self.session
        self._raise_if_ended()
        if not qmp.is_listening(self.host.transport, self.qmp_socket):
            hint = ": its process is stopped" if session.state() == "T" else ""
            raise QemuError(f"{self._who}: QEMU does not answer{hint}\n{session.tail(_CONSOLE_LINES)}")
        require_placed(self.host, self.placed)

    @property
    def _who(self) -> str:
        """Whose fault it is, for the user: the host's, or that of one of its guests."""
        return f"{self.host.name}: {self.name}" if self.one_of_several else self.host.name

    def _raise_if_ended(self) -> None:
        """Raises QemuError when QEMU has ended, or runs a kernel that gave up."""
        session = self.session
        code = session.exit_code()
        console = session.output()
        if (found := _NO_VHOST.search(console)) is not None:
            raise QemuError(f"{self._who}: QEMU goes on without vhost: {found[0].strip()}")
        reason = panic(console)
        if code is None and not reason:
            session.require_life()
            return
        if reason:
            raise QemuError(f"{self._who}: the guest's kernel gave up: {reason}\n{around_panic(console, _CONSOLE_LINES)}")
        raise QemuError(f"{self._who}: QEMU ended with exit code {code}:\n{session.tail(_CONSOLE_LINES)}")

    # -- its end ---------------------------------------------------------------------------------------------

    def end(self, settings: GuestSettings) -> None:
        """End this guest alone; what was changed on it ends with it. What others do not see of it may stay: links."""
        self.guest.close()
        self.guest.nic = None
        self.host.journal.undo_machine(self.name)
        settings.interface.detach(self)

    def kill(self, hurry: bool = False) -> bool:
        """End QEMU in order; returns whether there was one.

        A guest on a snapshot has nothing to save and is ended at once; any other may shut down first, in a hurry only
        for a short while.
        """
        session = self.session
        # In a hurry a tmux server that hangs is not asked: without a process there is nothing to end in order.
        was_there = session.state() is not None if hurry else session.is_running()
        if was_there:
            self._quit(session, hurry)
        was_there = session.stop(hurry=hurry) or was_there
        self.facts = {}
        self.placed = []
        self.switch_facts = {}
        sockets = [self.qmp_socket, self.host.state_file(f"{self.name}.gdb")]
        self.host.transport.outside.run(["rm", "-f", "--", *sockets], sudo=True)
        return was_there

    def _quit(self, session: Session, hurry: bool) -> None:
        has_own_disk = self.number == 1 and not self.config.root_disk_snapshot and not self.one_of_several
        try:
            with qmp.connect(self.host.transport, self.qmp_socket) as control:
                if has_own_disk:
                    control.command("system_powerdown")
                    self._wait_for_powerdown(session, 3.0 if hurry else _POWERDOWN_TIMEOUT)
                if session.exit_code() is None:
                    control.command("quit")
            session.wait(1.0 if hurry else 5.0)
        except (ConnectError, QemuError, SessionError, WaitTimeout) as error:
            log.debug("%s: QEMU does not end over QMP: %s", self.name, error)

    def _wait_for_powerdown(self, session: Session, timeout: float) -> None:
        try:
            session.wait(timeout)
        except WaitTimeout:
            log.warning("%s: %s did not shut down within %g s", self.host.name, self.name, timeout)
