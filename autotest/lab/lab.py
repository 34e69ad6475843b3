"""The built-in testbed: two network namespaces joined by one veth pair, the wire, and the guest image.

It makes just what the configuration describes: the namespaces and keys of section ``lab``, the test interfaces of
``host`` and ``loadgen``. Everything stays inside the namespaces; they have no way out of this machine.

With ``emulated_host`` a QEMU machine in the host's namespace is the host, and the wire leads to a NIC of it.
"""

from __future__ import annotations

import logging
import os
import signal
import stat
from dataclasses import dataclass
from pathlib import Path

from autotest.config.testbed import LabConfig, ServerConfig, Testbed
from autotest.errors import ConfigError, ConnectError, Problem, TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.lab import image as guest_image
from autotest.lab import ssh
from autotest.lab.emulated.host import WIRE_ADDRESS, EmulatedHost, recipe
from autotest.network.links import Links
from autotest.remote.local import LocalTransport
from autotest.remote.processes import boot_id
from autotest.remote.transport import Transport
from autotest.run.journal import Change, Journal
from autotest.servers.host import Host
from autotest.servers.loadgen import LoadGen
from autotest.servers.server import Server

log = logging.getLogger(__name__)

_PROGRAMS = {
    "ip": "iproute2",
    "tmux": "tmux",
    "socat": "socat",
    "luajit": "luajit",
    "qemu-system-x86_64": "qemu-system-x86",
    "sshd": "openssh-server",
    "ssh-keygen": "openssh-client",
}
_NAME = "lab"  # in the journal
_EMULATED = "emulated-host"  # folder in the lab's directory
_SESSIONS = ("l2-load-latency", "reflector", *sorted({kind.session for kind in INTERFACE_KINDS.values() if kind.session}))


@dataclass(frozen=True)
class LabStatus:
    """What is there of the lab."""

    namespaces: dict[str, bool]
    wire: bool
    image: Path | None
    guest_running: bool
    emulated_host: bool | None = None  # None: there shall be none

    @property
    def is_up(self) -> bool:
        parts = [*self.namespaces.values(), self.wire, self.image is not None, self.emulated_host is not False]
        return all(parts)

    def lines(self) -> list[str]:
        """For the user."""
        rows = [(f"namespace {name}", "there" if there else "missing") for name, there in self.namespaces.items()]
        rows += [
            ("wire", "there" if self.wire else "missing"),
            ("guest image", str(self.image) if self.image else "missing: lab up takes the one that is kept, or makes it"),
            *([("emulated host", _running(self.emulated_host))] if self.emulated_host is not None else []),
            ("guest", _running(self.guest_running)),
            ("lab", "up" if self.is_up else "down"),
        ]
        width = max(len(name) for name, _ in rows)
        return [f"{name:<{width}}  {value}" for name, value in rows]


def _running(is_running: bool) -> str:
    return "running" if is_running else "not running"


class Lab:
    """The lab of a testbed whose configuration has a section ``lab``."""

    def __init__(self, testbed: Testbed) -> None:
        if testbed.lab is None:
            raise TestbedError(f"{testbed.file} has no section [lab]: it describes a testbed of its own, not the lab")
        self.testbed = testbed
        self.config: LabConfig = testbed.lab
        self.directory = Path(testbed.lab.directory)
        self._here = LocalTransport("lab")
        self._ends = ((self.config.host_netns, testbed.host), (self.config.loadgen_netns, testbed.loadgen))
        self._emulated = EmulatedHost(testbed, self.directory / _EMULATED) if testbed.lab.emulated_host else None

    # -- up ------------------------------------------------------------------------------------------------

    def up(self) -> None:
        """Make what is missing; what is there stays as it is.

        Raises:
            TestbedError: not root, a program is missing, or no guest image can be built.
            ConfigError: the configuration lacks what the lab needs.
        """
        self._check()
        was_up = self.status().is_up
        self._make_directory()
        for netns, _ in self._ends:
            self._add_namespace(netns)
            self._links(netns).up("lo")
        if self._emulated:
            self._start_emulated_host(self._emulated)
        else:
            self._add_wire()
        if self.config.sshd:
            for netns, _ in self._ends:
                ssh.start_server(LocalTransport(netns, netns), self.directory / netns)
        if not was_up:
            log.info("the lab is up")

    def _check(self) -> None:
        if os.geteuid() != 0:
            raise TestbedError("the lab needs root, for its network namespaces and its guest image: use sudo")
        found = self._here.run(
            ["sh", "-c", 'for program; do command -v -- "$program" >/dev/null || echo "$program"; done', "sh", *_PROGRAMS]
        ).stdout.split()
        if found:
            packages = " ".join(sorted(_PROGRAMS[program] for program in found))
            raise TestbedError(f"the lab needs {', '.join(found)}: apt-get install {packages}")
        keys = ("test_iface", "test_iface_mac")
        problems = [
            problem for section in ("host", "loadgen") for problem in self.testbed.missing(section, keys, "the lab's wire")
        ]
        problems += self.testbed.missing("guest", ("ssh_config",), "the lab's guest")
        if self._emulated:
            problems += self.testbed.missing("host", ("ssh_config",), "the emulated host")
            if self.testbed.host.test_iface_addr != WIRE_ADDRESS:
                where = f"must be {WIRE_ADDRESS}: that NIC of the emulated host is wired to the loadgen"
                problems.append(Problem(self.testbed.file, "host", "test_iface_addr", where))
        if problems:
            raise ConfigError(problems)

    def _make_directory(self) -> None:
        built = guest_image.build(image_cache())
        host_image = guest_image.build(image_cache(), recipe()) if self._emulated else None
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._require_own_directory()
        _link(self.directory / "image", built.directory)
        if host_image:
            _link(self.directory / "host-image", host_image.directory)
        address = self._emulated.address if self._emulated else None
        ssh.write_client_files(self.testbed, self.config, self.directory, built, host_image, address)

    def _require_own_directory(self) -> None:
        """Raises TestbedError where the directory is somebody else's: its files are trusted, and all is removed."""
        found = os.lstat(self.directory)
        own = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
        if own and not (self.directory / "image").is_symlink():
            made_here = {"known_hosts", "ssh_config", "host-image", _EMULATED, *(netns for netns, _ in self._ends)}
            own = all(name in made_here or name.endswith(".tmp") for name in os.listdir(self.directory))
        if not own:
            raise TestbedError(f"{self.directory} is there, but it is not the lab's: name another directory in [lab]")

    def _add_namespace(self, netns: str) -> None:
        if not self._namespace_exists(netns):
            self._here.run(["ip", "netns", "add", netns])
        inside = LocalTransport(netns, netns)
        # Nobody in there speaks IPv6: its neighbour discovery would only be counted among the test frames.
        inside.run(["sysctl", "-q", "-w", "net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1"])

    def _add_wire(self) -> None:
        (host_netns, host), (loadgen_netns, loadgen) = self._ends
        if not self._wire_exists():
            command = ["ip", "link", "add", "name", _iface(host), "address", _mac(host), "netns", host_netns]
            command += ["type", "veth", "peer", "name", _iface(loadgen), "address", _mac(loadgen)]
            self._here.run([*command, "netns", loadgen_netns])
        for netns, server in self._ends:
            self._links(netns).up(_iface(server))

    def _start_emulated_host(self, emulated: EmulatedHost) -> None:
        emulated.start((self.directory / "host-image").resolve(), (self.directory / "image").resolve())
        self._links(self.config.loadgen_netns).up(_iface(self.testbed.loadgen))
        emulated.wait_for_login()

    # -- down ----------------------------------------------------------------------------------------------

    def down(self) -> None:
        """End what runs in the lab and remove it; the guest image stays in the cache."""
        self._check_root()
        existing = [netns for netns, _ in self._ends if self._namespace_exists(netns)]
        host, loadgen = self._servers()
        if self._emulated:
            self._emulated.stop()  # and with it all that is in it
        else:
            host.kill_guest()
        here = [loadgen] if self._emulated else [host, loadgen]
        for server in here:
            for name in sorted({*_SESSIONS, *_noted_sessions(server)}):
                server.session(name, signal.SIGINT).stop()
        for folder in {server.state_dir for server in here}:
            self._here.run(["rm", "-rf", "--", folder])
        for netns in existing:
            ssh.stop_server(self._here, self.directory / netns)
            self._here.run(["ip", "netns", "delete", netns])
        if self.directory.exists():
            self._require_own_directory()
            self._here.run(["rm", "-rf", "--", str(self.directory)])
        log.info("the lab is down")

    def _check_root(self) -> None:
        if os.geteuid() != 0:
            raise TestbedError("the lab needs root: use sudo")

    def up_within(self, journal: Journal) -> None:
        """As :meth:`up`; where the lab was not up, undoing the journal takes it down again."""
        if not self.status().is_up:
            journal.note(_NAME, "lab", boot=boot_id(self._here), details={})
        self.up()

    def undo(self, change: Change) -> str | None:
        """Undo a change of the journal that is not a server's; says what was done.

        Raises:
            TestbedError: it is none of the lab.
        """
        if (change.server, change.kind) != (_NAME, "lab"):
            raise TestbedError(f"the journal names a server {change.server!r}, which this testbed has not")
        if change.boot != boot_id(self._here):
            return None
        self.down()
        return "lab: taken down"

    def transports(self) -> dict[str, Transport]:
        """Ways to host and loadgen without SSH: the lab is on this machine, and its SSH servers may be what is broken.

        An emulated host is reached over SSH alone; all that was changed in one that has ended is gone with it.
        """
        (host_netns, _), (loadgen_netns, _) = self._ends
        loadgen: dict[str, Transport] = {"loadgen": LocalTransport("loadgen", loadgen_netns)}
        if not self._emulated:
            return loadgen | {"host": LocalTransport("host", host_netns)}
        return loadgen if self._emulated.pid() is not None else loadgen | {"host": self._emulated.ended()}

    # -- what is there -------------------------------------------------------------------------------------

    def status(self) -> LabStatus:
        """What is there of the lab; touches nothing."""
        link = self.directory / "image"
        namespaces = {netns: self._namespace_exists(netns) for netns, _ in self._ends}
        up = all(namespaces.values()) and os.geteuid() == 0
        emulated = None if self._emulated is None else self._emulated.pid() is not None
        guest_running = up and link.exists() and emulated is not False and self._guest_is_running()
        image = link.resolve() if link.exists() else None
        return LabStatus(namespaces, up and self._wire_exists(), image, guest_running, emulated)

    def _guest_is_running(self) -> bool:
        host = self._servers()[0]
        try:
            return host.guest_is_running()
        except ConnectError:  # an emulated host that does not answer yet, or no longer
            return False
        finally:
            host.close()

    def _servers(self) -> tuple[Host, LoadGen]:
        ways = self.transports()
        return Host(self.testbed, ways.get("host")), LoadGen("loadgen", self.testbed.loadgen, ways["loadgen"])

    def _namespace_exists(self, netns: str) -> bool:
        return Path("/run/netns", netns).exists()

    def _wire_exists(self) -> bool:
        if self._emulated:
            return self._links(self.config.loadgen_netns).show(_iface(self.testbed.loadgen)) is not None
        return all(self._links(netns).show(_iface(server)) is not None for netns, server in self._ends)

    @staticmethod
    def _links(netns: str) -> Links:
        return Links(LocalTransport(netns, netns))


def _noted_sessions(server: Server) -> list[str]:
    """What has run on a server of the lab: of several guests each may have had a process of its own."""
    return [path.stem for path in Path(server.state_dir).glob("*.pid")]


def image_cache() -> Path:
    """Where guest images are kept: in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()
    return Path(base) / "autotest" / "images"


def _link(path: Path, target: Path) -> None:
    """A symbolic link, or one to another place."""
    if not path.is_symlink() or path.readlink() != target:
        path.unlink(missing_ok=True)
        path.symlink_to(target)


def _iface(server: ServerConfig) -> str:
    assert server.test_iface
    return server.test_iface


def _mac(server: ServerConfig) -> str:
    assert server.test_iface_mac
    return server.test_iface_mac
