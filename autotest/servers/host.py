"""The host: networks for the guest, and the guest's life."""

from __future__ import annotations

import ipaddress
import logging
import shlex
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotest.config.testbed import GuestConfig, HostConfig, Testbed
from autotest.errors import ConnectError, QemuError, TestbedError, WaitTimeout
from autotest.network.kinds import INTERFACE_KINDS, InterfaceKind
from autotest.qemu import accelerator, qmp, tsc
from autotest.qemu.console import panic
from autotest.qemu.parts import program_of
from autotest.remote.ssh_config import resolve
from autotest.remote.tmux import Session
from autotest.remote.transport import Transport
from autotest.remote.wait import wait_for
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.guest import MACVTAP_FD, Guest, GuestSettings, qemu_command_line
from autotest.servers.server import takes_logins

log = logging.getLogger(__name__)

_QEMU_START_TIMEOUT = 15.0  # seconds until QEMU answers on QMP
_POWERDOWN_TIMEOUT = 60.0  # seconds that a guest with a disk of its own gets to shut down
_CONSOLE_LINES = 30  # of the console in an error; the line that names a panic is quoted besides
_SHORTEST_TRY, _LONGEST_TRY = 0.1, 5.0  # seconds for one try to connect to a booting guest
_MACVTAP_OPEN = 'device=$1; shift; exec "$@" {fd}<>"$device"'.replace("{fd}", str(MACVTAP_FD))


class Host(DeviceUnderTest):
    """The machine that runs the guests."""

    config: HostConfig

    def __init__(self, testbed: Testbed, transport: Transport | None = None) -> None:
        super().__init__("host", testbed.host, transport)
        self.testbed = testbed
        self.guest_facts: dict[str, str] = {}
        """What runs the guest, for the record of a trial; empty while none of ours runs."""

    # -- networks ------------------------------------------------------------------------------------------

    def admin_network_up(self) -> None:
        """The bridge and tap over which the guest is reached. The guest's neighbour entry spares lost ARP tries."""
        config = self.config
        assert config.admin_bridge and config.admin_tap
        self.links.add_bridge(config.admin_bridge, config.admin_bridge_ip_net)
        self.links.add_tap(config.admin_tap, config.admin_bridge)
        address = self._guest_admin_address()
        if address and self.testbed.guest.admin_iface_mac:
            entry = ["lladdr", self.testbed.guest.admin_iface_mac, "dev", config.admin_bridge, "nud", "permanent"]
            self.run(["ip", "neighbour", "replace", address, *entry], sudo=True)

    def admin_network_down(self) -> None:
        for link, kind in ((self.config.admin_tap, "tap"), (self.config.admin_bridge, "bridge")):
            if link:
                self.links.delete(link, kind)

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
        try:
            self.admin_network_up()
            yield
        finally:
            self.admin_network_down()

    @contextmanager
    def test_network(self, kind: InterfaceKind, guest: bool) -> Iterator[None]:
        """The links of an interface kind, for a guest or for the host itself, as long as the context lasts."""
        try:
            self._make_room(kind)
            kind.set_up(self.links, self.testbed, guest)
            yield
        finally:
            kind.tear_down(self.links, self.testbed)

    def networks_up(self, kind: InterfaceKind) -> None:
        """The admin network and the links of one interface kind for a guest; those of other kinds make room."""
        self._make_room(kind)
        self.admin_network_up()
        kind.set_up(self.links, self.testbed, True)

    def _make_room(self, kind: InterfaceKind) -> None:
        """Remove the links of other kinds, which an earlier command or a killed run left on the test interface."""
        for other in INTERFACE_KINDS.values():
            if other is not kind:
                other.tear_down(self.links, self.testbed)

    def networks_down(self, kind: InterfaceKind | None = None) -> None:
        """Undo :meth:`networks_up`, for one kind or for all."""
        for each in [kind] if kind else INTERFACE_KINDS.values():
            each.tear_down(self.links, self.testbed)
        self.admin_network_down()

    # -- the guest -----------------------------------------------------------------------------------------

    @property
    def guest_session(self) -> Session:
        return self.session("guest")

    @property
    def qmp_socket(self) -> str:
        return self.state_file("guest.qmp")

    def guest_is_running(self) -> bool:
        """Whether there is a QEMU of ours."""
        return self.guest_session.exists()

    def run_guest(self, settings: GuestSettings, host: HostConfig, guest: GuestConfig) -> None:
        """Start QEMU and wait until it says that the guest runs.

        Raises:
            QemuError: it did not start, or ended at once; with what it wrote.
        """
        program = program_of(settings.qemu_path or host.qemu_path)
        self._require_guest_needs(program, settings, host, guest)
        chosen = accelerator.choose(host.accelerator, self.transport, program, guest.kernel, self.state_dir)
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
        version = self.run([program, "--version"]).stdout.splitlines()
        self.guest_facts = {
            "accelerator": chosen,
            "qemu": program,
            "qemu version": version[0] if version else "",
            "root disk": self.run(["readlink", "-f", host.root_disk_file or ""], sudo=True).stdout.strip(),
            "command line": shlex.join(command),
        }
        with self._macvtap_opener(settings.interface.macvtap(host)) as opener:
            self._start_qemu([*opener, *command])
        if settings.debug:
            log.info("GDB server of the guest: target remote %s", self.state_file("guest.gdb"))

    def _start_qemu(self, command: list[str]) -> None:
        session = self.guest_session
        session.start(command, sudo=True)  # QEMU itself replaces a QMP socket that is left from an earlier one
        try:
            wait_for(lambda: self._guest_started(session), "QEMU to answer on QMP", _QEMU_START_TIMEOUT, 0.02)
        except BaseException:
            session.stop(signal.SIGTERM)
            raise

    def _require_guest_needs(
        self, program: str, settings: GuestSettings, host: HostConfig, guest: GuestConfig
    ) -> None:
        self.require_programs([program], "the guest (qemu_path, or qemus in tests.conf)")
        self.require_programs(["ip", "tmux", "python3", "socat"], "the host")
        if settings.vhost and self.run(["test", "-e", "/dev/vhost-net"], check=False).code != 0:
            raise TestbedError(f"{self.name}: vhost is asked for, but there is no /dev/vhost-net: modprobe vhost_net")
        files = {"root_disk_file": host.root_disk_file, "kernel": guest.kernel, "initrd": guest.initrd}
        script = 'for file; do [ -r "$file" ] || echo "$file"; done'
        named = [file for file in files.values() if file]
        missing = self.run(["sh", "-c", script, "sh", *named], sudo=True).stdout.splitlines()
        if missing:
            keys = ", ".join(f"{key} {file}" for key, file in files.items() if file in missing)
            raise TestbedError(f"{self.name}: there is no {keys}: put it there, or name another in the configuration")

    def _tsc_khz(self) -> int:
        """The rate of the host's time stamp counter in kHz, remembered there until its next boot."""
        memory = self.state_file("tsc-khz")
        known = self.transport.read(memory)
        if known is None:
            known = self.run(["python3", "-"], input=Path(tsc.__file__).read_text()).stdout
            self.transport.write(memory, known)
        return int(known)

    def _guest_started(self, session: Session) -> bool:
        self._raise_if_ended(session)
        return qmp.is_listening(self.transport, self.qmp_socket)

    def _raise_if_ended(self, session: Session) -> None:
        code = session.exit_code()
        if code is not None:
            reason = panic(session.output())
            because = f" after the guest's {reason}" if reason else ""
            raise QemuError(f"{self.name}: QEMU ended with exit code {code}{because}:\n{session.tail(_CONSOLE_LINES)}")

    @contextmanager
    def _macvtap_opener(self, name: str | None) -> Iterator[list[str]]:
        """What goes in front of a command that gets the macvtap as an open file; nothing without a macvtap.

        Where the kernel made no device file with the macvtap's number, there is one of ours until QEMU has opened it:
        in ``/dev`` and nowhere else, because device files elsewhere may not be opened.
        """
        if name is None:
            yield []
            return
        path, major, minor = self.links.macvtap_device(name)
        opener = ["sh", "-c", _MACVTAP_OPEN, "sh"]
        if self.run(["stat", "-c", "%t:%T", path], check=False).stdout.strip() == f"{major:x}:{minor:x}":
            yield [*opener, path]
            return
        node = f"/dev/autotest-{name}"
        self.run(["rm", "-f", "--", node], sudo=True)
        try:
            self.run(["mknod", "-m", "600", node, "c", str(major), str(minor)], sudo=True)
            yield [*opener, node]
        finally:
            self.run(["rm", "-f", "--", node], sudo=True)

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

    def kill_guest(self) -> bool:
        """End the guest in order; returns whether there was one.

        A guest on a snapshot has nothing to save and is ended at once; any other may shut down first.
        """
        session = self.guest_session
        if not session.exists():
            return False
        try:
            with qmp.connect(self.transport, self.qmp_socket) as control:
                if not self.config.root_disk_snapshot:
                    control.command("system_powerdown")
                    self._wait_for_powerdown(session)
                if session.exit_code() is None:
                    control.command("quit")
            session.wait(5.0)
        except (ConnectError, QemuError, WaitTimeout) as error:
            log.debug("%s: QEMU does not end over QMP: %s", self.name, error)
        session.stop(signal.SIGTERM)
        self.guest_facts = {}
        self.run(["rm", "-f", "--", self.qmp_socket, self.state_file("guest.gdb")], sudo=True)
        return True

    def _wait_for_powerdown(self, session: Session) -> None:
        try:
            session.wait(_POWERDOWN_TIMEOUT)
        except WaitTimeout:
            log.warning("%s: the guest did not shut down within %g s", self.name, _POWERDOWN_TIMEOUT)

    @contextmanager
    def running_guest(self, settings: GuestSettings, guest: Guest) -> Iterator[None]:
        """A guest that takes logins, as long as the context lasts."""
        if self.kill_guest():
            log.warning("%s: ended the guest that was running", self.name)
        try:
            self.run_guest(settings, self.config, self.testbed.guest)
            seconds = self.wait_for_guest(guest, self.testbed.guest.boot_timeout)
            log.info("%s: login %.1f s after QEMU's start", guest.name, seconds)
            self.guest_facts["kernel"] = guest.run(["uname", "-r"]).stdout.strip()
            yield
        finally:
            guest.close()
            self.kill_guest()
