"""What every machine of a testbed can do."""

from __future__ import annotations

import hashlib
import logging
import os
import posixpath
import re
import signal
import socket
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Unpack

from autotest.config.testbed import ServerConfig
from autotest.errors import ConnectError, HostKeyError, LoginRefused, TestbedError
from autotest.network.links import Links
from autotest.network.pci import PciDevices
from autotest.remote.local import LocalTransport
from autotest.remote.processes import boot_id
from autotest.remote.ssh import SshTransport
from autotest.remote.ssh_config import resolve
from autotest.remote.tmux import Session
from autotest.remote.transport import Result, RunOptions, Transport
from autotest.run.journal import Journal
from autotest.servers.hugepages import Hugepages
from autotest.servers.undoing import undo

log = logging.getLogger(__name__)

_KNOWN = "known"
# A line of sha256sum: with a backslash in front, backslash, line feed and carriage return in the name are escaped.
_SHA256_LINE = re.compile(r"(\\?)([0-9a-f]{64}) [ *](.+)", re.DOTALL)
_ESCAPED = re.compile(r"\\([\\nr])")
_MEANT = {"\\": "\\", "n": "\n", "r": "\r"}


def is_own_name(fqdn: str) -> bool:
    """Whether it is localhost or the name of this machine; no name server is asked."""
    return fqdn in ("localhost", socket.gethostname())


def is_this_machine(fqdn: str) -> bool:
    """Whether the name or address is localhost or this machine; ``user@host`` never is: it asks for SSH."""
    if "@" in fqdn:
        return False
    if is_own_name(fqdn) or fqdn == socket.getfqdn():
        return True
    try:
        addresses = socket.getaddrinfo(fqdn, None, type=socket.SOCK_DGRAM)
    except (OSError, UnicodeError):  # UnicodeError: a name that no name server can have
        return False
    return any(_is_own_address(family, address) for family, _, _, _, address in addresses)


def _is_own_address(family: int, address: tuple[object, ...]) -> bool:
    """Only an address of this machine can be bound to; nothing is sent."""
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address[0], 0, *address[2:]))
        except OSError:
            return False
        return True


def transport_to(name: str, config: ServerConfig) -> Transport:
    """How to reach the server: directly when it is this machine, else over SSH. Opens nothing.

    A name for which the SSH configuration has another host is meant for SSH: no name server is asked about it.

    Raises:
        TestbedError: ``ssh_as_root`` asks for root's keys and configuration, but this process is not root's.
    """
    if config.ssh_as_root and os.geteuid() != 0:
        raise TestbedError(f"{name}: ssh_as_root wants the connection opened with root's keys: run autotest with sudo")
    if is_own_name(config.fqdn):
        return LocalTransport(name, config.netns)
    destination = resolve(config.fqdn, config.ssh_config)
    is_alias = destination.host != config.fqdn or destination.proxy_command or destination.jumps
    if not is_alias and is_this_machine(config.fqdn):
        return LocalTransport(name, config.netns)
    return SshTransport(name, config.fqdn, config.ssh_config, config.netns)


class Server:
    """A machine of the testbed. Nothing is opened before it is needed."""

    def __init__(
        self, name: str, config: ServerConfig, transport: Transport | None = None, journal: Journal | None = None
    ) -> None:
        self.name = name
        self.config = config
        self._given_transport = transport
        self.journal = journal or Journal(lambda change: undo(self, change))
        self.far_end_sleeps = False
        """Whether the NIC at the other end of the wire has its link only while MoonGen drives it."""

    @cached_property
    def transport(self) -> Transport:
        """The way there."""
        found = self._given_transport or transport_to(self.name, self.config)
        found.note_temporary = self._note_file
        found.temporary_is_gone = self._file_is_gone
        return found

    def _note_file(self, path: str) -> None:
        self.note("file", path=path)

    def _file_is_gone(self, path: str) -> None:
        self.journal.settle(self.name, "file", {"path": path})

    @cached_property
    def links(self) -> Links:
        """Its network links."""
        return Links(self.transport, self.note)

    @cached_property
    def pci(self) -> PciDevices:
        """Its PCI devices."""
        return PciDevices(self.transport, self.note)

    @cached_property
    def hugepages(self) -> Hugepages:
        """Its huge pages."""
        return Hugepages(self.transport, self.note)

    def wait_for_carrier(self, iface: str) -> None:
        """Wait for the carrier of the interface at the wire's end, unless the other end sleeps: then MoonGen waits for it.

        Raises:
            WaitTimeout: it has none in time.
        """
        if not self.far_end_sleeps:
            self.links.wait_for_carrier(iface)

    def note(self, kind: str, /, *, machine: str = "", **details: str) -> None:
        """Write a change of this machine into the journal, before it is made; see :mod:`autotest.servers.undoing`."""
        self.journal.note(self.name, kind, boot=self.boot, machine=machine, details=details)

    @cached_property
    def boot(self) -> str:
        """The boot id of the machine: most changes end with its next boot."""
        return boot_id(self.transport)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} at {self.config.fqdn}>"

    def run(self, command: Sequence[str], **options: Unpack[RunOptions]) -> Result:
        """Run a command there; see :meth:`autotest.remote.transport.Transport.run`."""
        return self.transport.run(command, **options)

    def ping(self, timeout: float = 10.0) -> float:
        """Reach the server; returns the seconds that it took. Raises ConnectError with the reason."""
        return self.transport.ping(timeout)

    def close(self) -> None:
        """Close the connection; it opens again when it is needed."""
        if "transport" in self.__dict__:
            self.transport.close()

    @cached_property
    def state_dir(self) -> str:
        """A folder there for logs, sockets and pids of what runs: one per tmux socket, for its user's eyes only.

        It is in ``/run`` for root and in the cache folder of any other user, so it outlives this process but
        nobody else can write to it.
        """
        name = posixpath.basename(self.config.tmux_socket)
        if name in ("", ".", "..", _KNOWN, "held"):  # the last two are folders of all, one of them the lock's
            raise TestbedError(f"{self.name}: tmux_socket {self.config.tmux_socket!r} cannot be the name of a folder there")
        return self._folder(name)

    @cached_property
    def memory_dir(self) -> str:
        """A folder there for what was found out about the machine, which holds until its next boot."""
        return self._folder(_KNOWN)

    def _folder(self, name: str) -> str:
        base = "/run/autotest"
        if not self.transport.is_root:
            # It holds until the next boot, and homes may be shared by several machines.
            base = posixpath.join(self._home(), ".cache/autotest/run", boot_id(self.transport))
        folder = posixpath.join(base, name)
        if self.transport.is_local:
            os.makedirs(folder, 0o700, exist_ok=True)
            os.chmod(folder, 0o700)  # it may have been there
        else:
            self.run(["sh", "-c", 'mkdir -p -m 700 -- "$1" && chmod 700 -- "$1"', "sh", folder])
        return folder

    def _home(self) -> str:
        """The home folder of the login: here not asked of a command, which may run as root in a namespace."""
        if self.transport.is_local:
            return os.path.expanduser("~")
        home = self.run(["sh", "-c", 'printf %s "$HOME"']).stdout
        if not home.startswith("/"):
            raise TestbedError(f"{self.name}: its login has no home folder, HOME is {home!r}")
        return home

    def state_file(self, name: str) -> str:
        """The path of a file in :attr:`state_dir`."""
        return posixpath.join(self.state_dir, name)

    def session(self, name: str, end_signal: signal.Signals = signal.SIGTERM, grace: float = 5.0) -> Session:
        """The tmux session of that name, running or not; it is ended by the signal, after ``grace`` seconds by force."""
        socket, folder = self.config.tmux_socket, self.state_dir
        return Session(self.transport, socket, name, folder, note=self.note, end_signal=end_signal, grace=grace)

    def require_programs(self, programs: Sequence[str], needed_by: str) -> None:
        """Raises TestbedError naming the programs that are not there."""
        script = 'for program; do command -v -- "$program" >/dev/null || printf "%s\\n" "$program"; done'
        missing = self.run(["sh", "-c", script, "sh", *programs]).stdout.splitlines()
        if missing:
            raise TestbedError(f"{self.name}: {needed_by} needs {', '.join(missing)}: install it there")

    def upload(self, folder: Path, target: str) -> int:
        """Copy the files below the folder that are missing or different there; returns how many were copied.

        Executable files stay executable. Files that are only there are left alone.
        """
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        names = [path.relative_to(folder).as_posix() for path in files]
        # To cd a dash is the folder before, to sha256sum the standard input: behind ./ both are only names.
        place = target if target.startswith("/") else f"./{target}"
        asked = [f"./{name}" for name in names]
        listing = self.run(["sh", "-c", 'cd -- "$0" 2>/dev/null && sha256sum -- "$@" 2>/dev/null', place, *asked], check=False)
        there = parse_sha256sums(listing.stdout)
        copied = 0
        for path, name in zip(files, names, strict=True):
            if there.get(f"./{name}") != hashlib.sha256(path.read_bytes()).hexdigest():
                mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
                with self.journal.scope(self.name):
                    self.transport.put(path, posixpath.join(target, name), mode)
                copied += 1
        return copied

    def upload_moonprogs(self, folder: Path) -> int:
        """Bring the MoonGen programs of this machine's folder to the server's ``moonprogs_dir``."""
        target = self.config.moonprogs_dir
        if target is None:
            raise TestbedError(f"{self.name}: moonprogs_dir is missing in its section: where the programs go")
        copied = self.upload(folder, target)
        log.debug("%s: %d MoonGen program files uploaded to %s", self.name, copied, target)
        return copied


def parse_sha256sums(text: str) -> dict[str, str]:
    """File name to checksum of what sha256sum printed; a line that is none of its own is left out."""
    found = {}
    for line in text.split("\n"):
        if match := _SHA256_LINE.fullmatch(line):
            escaped, checksum, name = match.groups()
            found[_ESCAPED.sub(lambda pair: _MEANT[pair[1]], name) if escaped else name] = checksum
    return found


def takes_logins(server: Server, timeout: float) -> bool:
    """Whether the server takes a login, to which it must connect within the time.

    Raises:
        ConnectError: it answers, but its host key is wrong or it refuses the login: waiting will not help.
    """
    try:
        server.transport.connect(timeout)
    except (HostKeyError, LoginRefused):
        raise
    except ConnectError:
        return False
    return True
