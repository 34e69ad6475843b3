"""Commands and files over one SSH connection per server: opened lazily, reused, reopened when it was cut."""

from __future__ import annotations

import itertools
import logging
import math
import os
import posixpath
import signal
import socket
import stat
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

import paramiko

from autotest.errors import CommandError, ConnectError, WaitTimeout
from autotest.remote.netns import create_connection
from autotest.remote.ssh_channel import (
    BoundedChannel,
    answer_limit,
    file_limit,
    hand_on,
    hurried,
    receive,
    send,
)
from autotest.remote.ssh_config import Destination, resolve, route
from autotest.remote.ssh_login import NoAnswer, login, watched
from autotest.remote.transport import (
    DEFAULT_TIMEOUT,
    MOST_READ,
    TIMEOUT_CODES,
    Result,
    Transport,
    command_line,
    full_command,
    require_text,
    socat_address,
    temporary_beside,
    to_bytes,
)
from autotest.remote.wait import wait_for
from autotest.run import interruption

logging.getLogger("paramiko").setLevel(logging.CRITICAL)  # what it has to say reaches the user as our errors

_GRACE = 2.5  # seconds that the far `timeout` command gets before the connection itself is given up
# When the process was asked to end: somebody waits for it.
_HURRIED_CONNECT = 2.0  # seconds for all of a new connection
_HURRIED_GRACE = 1.0


class SshTransport(Transport):
    """A machine reached over SSH; see :class:`autotest.remote.transport.Transport`.

    The host's key must be known. No keepalives are sent: while a trial runs, nothing goes over the connection.
    """

    is_local = False

    def __init__(self, name: str, destination: str, config_file: str | None = None, netns: str | None = None) -> None:
        super().__init__(name)
        self.destination = destination
        self._config_file = config_file
        self._netns = netns
        self._hops: list[paramiko.SSHClient] = []
        self._proxy: subprocess.Popen[bytes] | None = None
        self._proxy_errors: IO[bytes] | None = None
        self._sftp_client: paramiko.SFTPClient | None = None
        self._is_root: bool | None = None
        self._slowness: float | None = None
        self._lock = threading.RLock()  # the library's SFTP gives one thread the answers to another's questions

    # -- the connection ------------------------------------------------------------------------------------

    def connect(self, timeout: float | None = None) -> None:
        """Open the connection unless it is open; ``timeout`` limits the first, network part of it, in seconds.

        Raises:
            ConnectError: with the host and what went wrong.
            HostKeyError: the host's key is unknown or another one than known.
        """
        with self._lock:
            self._connect(timeout)

    def _connect(self, timeout: float | None) -> None:
        if self._hops and (transport := self._hops[-1].get_transport()) and transport.is_active():
            return
        self.close()
        hops = route(self.destination, self._config_file)
        deadline = time.monotonic() + hurried(math.inf, _HURRIED_CONNECT)

        def within(limit: float) -> float:
            return min(limit, max(0.1, deadline - time.monotonic()))

        try:
            connection = self._first_socket(hops[0], within(timeout or hops[0].connect_timeout))
            for hop, beyond in itertools.pairwise(hops):
                self._hops.append(login(hop, connection, within(threading.TIMEOUT_MAX)))
                connection = self._channel_to(beyond, hop, within(timeout or beyond.connect_timeout))
            self._hops.append(login(hops[-1], connection, within(threading.TIMEOUT_MAX)))
        except ConnectError as error:
            raise type(error)(f"{error}{self._proxy_says()}") from None
        finally:
            if len(self._hops) < len(hops):
                self.close()
        if self.after_connect:
            self.after_connect()

    def _first_socket(self, first: Destination, timeout: float) -> socket.socket:
        if first.proxy_command:
            return self._start_proxy(first)
        try:
            return create_connection((first.host, first.port), timeout, self._netns)
        except (OSError, UnicodeError) as error:  # UnicodeError: a name that no name server can have
            reason = "timed out" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or str(error)
            raise ConnectError(f"{self.name}: cannot connect to {first.host} port {first.port}: {reason}") from None

    def _channel_to(self, beyond: Destination, hop: Destination, timeout: float) -> socket.socket:
        """The channel that leads from the last jump host to the next hop."""
        transport = self._hops[-1].get_transport()
        assert transport is not None
        try:
            return transport.open_channel(  # type: ignore[return-value]  # a channel behaves as a socket
                "direct-tcpip", (beyond.host, beyond.port), ("", 0), timeout=timeout
            )
        except (paramiko.SSHException, EOFError, OSError) as error:
            message = f"{self.name}: cannot reach {beyond.host} port {beyond.port} through {hop.alias}: {error}"
            raise ConnectError(message) from None

    def _start_proxy(self, target: Destination) -> socket.socket:
        ours, theirs = socket.socketpair()
        command = ["sh", "-c", target.proxy_command]  # ssh_config(5): it is run by the user's shell
        with theirs:
            self._proxy_errors = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the connection
            self._proxy = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self._proxy_errors, start_new_session=True
            )
        return ours

    def _proxy_says(self) -> str:
        """The last line that a ProxyCommand wrote to its stderr, for the error message."""
        if self._proxy_errors is None:
            return ""
        self._proxy_errors.seek(0)
        lines = self._proxy_errors.read().decode(errors="replace").strip().splitlines()
        return f" (ProxyCommand: {lines[-1]})" if lines else ""

    def close(self) -> None:
        with self._lock:  # another thread may be about to use the connection
            self._close()

    def _close(self) -> None:
        self._sftp_client = None
        while self._hops:  # the first hop first: to take leave of one behind a silent one could wait for ever
            self._hops.pop(0).close()
        if self._proxy:
            with suppress(ProcessLookupError):
                os.killpg(self._proxy.pid, signal.SIGKILL)
            self._proxy.wait()
            self._proxy = None
        if self._proxy_errors:
            self._proxy_errors.close()
            self._proxy_errors = None

    def _open_channel(self) -> paramiko.Channel:
        """A session channel, after reconnecting once when the connection turns out to be cut.

        A server takes only so many at once, ``MaxSessions`` of sshd_config(5): then it waits for the end of another thread's.
        """
        refusal = ""

        def opened() -> paramiko.Channel | None:
            nonlocal refusal
            try:
                with self._lock:
                    return self._channel_of_connection()
            except paramiko.ChannelException as error:
                refusal = str(error)
                return None

        limit = file_limit()
        try:
            return wait_for(opened, f"{self.name}: a channel of the connection", limit)
        except WaitTimeout as error:
            raise ConnectError(f"{error}: {refusal}") from None

    def _channel_of_connection(self) -> paramiko.Channel:
        for attempt in (1, 2):
            self.connect()
            transport = self._hops[-1].get_transport()
            limit = answer_limit()
            try:
                if transport is None:
                    raise paramiko.SSHException("closed")
                with watched(self.name, limit, transport.close):  # the library's own limit does not bound the sending
                    return transport.open_session(timeout=threading.TIMEOUT_MAX)
            except NoAnswer:
                self.close()
                if attempt == 2 or interruption.requested():
                    raise
            except paramiko.ChannelException:
                raise  # the connection itself works, and others may be using it
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.close()
                if attempt == 2:
                    raise ConnectError(f"{self.name}: the connection was cut: {error}") from None
        raise AssertionError("unreachable")

    @contextmanager
    def _channel(self) -> Iterator[paramiko.Channel]:
        """A session channel. Even to close it could take for ever: behind input that the far side does not take."""
        channel = self._open_channel()
        try:
            yield channel
        finally:
            with suppress(ConnectError), self._watched(channel, answer_limit()), channel:
                pass

    def _watched(self, channel: paramiko.Channel, limit: float) -> AbstractContextManager[None]:
        def cut() -> None:
            channel.get_transport().close()
            channel.event.set()  # whoever began to wait just as the connection was cut is not woken by that

        return watched(self.name, limit, cut)

    @property
    def is_root(self) -> bool:
        if self._is_root is None:
            self._is_root = self.run(["id", "-u"]).stdout.strip() == "0"
        return self._is_root

    # -- commands ------------------------------------------------------------------------------------------

    def argv(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
    ) -> list[str]:
        return full_command(command, env=env, cwd=cwd, sudo=sudo and not self.is_root)

    def _patient(self, timeout: float) -> float:
        """A machine whose ``ConnectTimeout`` is longer than a command usually takes is a slow one: commands get as long, too."""
        if self._slowness is None:
            with suppress(ConnectError):  # what is wrong with the configuration is said when it connects
                self._slowness = resolve(self.destination, self._config_file).connect_timeout
        slow = (self._slowness or 0) > DEFAULT_TIMEOUT and not interruption.requested()
        return max(timeout, self._slowness or 0) if slow else timeout

    def _bounded(self, command: Sequence[str], timeout: float) -> Sequence[str]:
        # The far side ends the command itself: a closed channel alone would leave it running.
        return ["timeout", "-k", "1", f"{timeout:g}", *command]

    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        start = time.monotonic()
        grace = hurried(_GRACE, _HURRIED_GRACE)
        with self._channel() as channel:
            try:
                with self._watched(channel, answer_limit()):
                    # Without `|| exit` the far shell makes way for the command, and its end by a signal has no code.
                    channel.exec_command(to_bytes(f"{command_line(argv)} || exit"))
                    sender = send(channel, data)
                stdout, stderr, code = receive(channel, start + timeout + grace)
                if code is None:  # the far side should have ended it
                    self.close()  # before the channel, which could not be closed in peace
                elif sender:
                    sender.join(grace)
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.close()
                raise ConnectError(f"{self.name}: the connection was cut during {command[0]}: {error}") from None
        if code in TIMEOUT_CODES and time.monotonic() - start >= timeout:
            raise self._timed_out(command, timeout, stderr)
        if code is None:
            raise ConnectError(f"{self.name}: no answer to {command[0]} within {timeout + grace:g} s: the connection is cut")
        if code == -1:
            self.close()
            raise ConnectError(f"{self.name}: the connection was cut during {command_line(command)}")
        return Result(tuple(command), code, stdout, stderr)

    # -- files ---------------------------------------------------------------------------------------------

    def _sftp(self) -> paramiko.SFTPClient:
        self.connect()
        channel = self._sftp_client.get_channel() if self._sftp_client else None
        if self._sftp_client is None or channel is None or channel.closed:
            channel = self._open_channel()
            try:
                with self._watched(channel, answer_limit()):
                    channel.invoke_subsystem("sftp")
                    self._sftp_client = paramiko.SFTPClient(BoundedChannel(channel, self._watched))  # type: ignore[arg-type]
            except (paramiko.SSHException, paramiko.SFTPError, EOFError, OSError) as error:
                raise ConnectError(f"{self.name}: no SFTP: {error}") from None
        return self._sftp_client

    def put(self, source: Path, target: str, mode: int = 0o644) -> None:
        with open(source, "rb") as content:
            self._upload(content.read(), target, mode)

    def write(self, target: str, content: str, mode: int = 0o644) -> None:
        self._upload(content.encode(), target, mode)

    def _upload(self, content: bytes, target: str, mode: int) -> None:
        require_text("a path", target)
        beside = temporary_beside(target, self.note_temporary)
        temporary = to_bytes(beside)
        with self._file_errors(target):
            sftp = self._sftp()
            _make_folders(sftp, to_bytes(posixpath.dirname(target)))
            try:
                with sftp.open(temporary, "wx") as file:
                    file.chmod(mode)
                    file.set_pipelined(True)
                    file.write(content)
                sftp.posix_rename(temporary, to_bytes(target))
            except BaseException:
                with suppress(OSError, paramiko.SSHException, EOFError):
                    sftp.remove(temporary)
                raise
        self.temporary_is_gone(beside)

    def get(self, source: str, target: Path) -> None:
        require_text("a path", source, str(target))
        temporary = Path(temporary_beside(str(target)))
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            with self._file_errors(source):
                self._sftp().get(to_bytes(source), str(temporary))
            os.replace(temporary, target)
        finally:
            temporary.unlink(missing_ok=True)

    def read(self, source: str) -> str | None:
        require_text("a path", source)
        with self._file_errors(source):
            try:
                with self._sftp().open(to_bytes(source), "rb") as file:
                    return file.read().decode(errors="replace")
            except FileNotFoundError:
                return None

    def read_from(self, source: str, start: int) -> bytes:
        require_text("a path", source)
        with self._file_errors(source):
            try:
                with self._sftp().open(to_bytes(source), "rb") as file:
                    file.seek(start)
                    return file.read(MOST_READ)
            except FileNotFoundError:
                return b""

    @contextmanager
    def _file_errors(self, path: str) -> Iterator[None]:
        try:
            with self._lock:
                yield
        except (paramiko.SSHException, EOFError, TimeoutError) as error:
            self.close()
            reason = str(error) or type(error).__name__
            raise ConnectError(f"{self.name}: the connection was cut while copying {path}: {reason}") from None
        except OSError as error:
            if error.errno is None:  # of SFTP's own errors; with a file's name the text would be lost
                raise OSError(f"{self.name}:{path}: {error}") from None
            error.filename = f"{self.name}:{path}"
            raise

    @contextmanager
    def connect_unix(self, path: str, timeout: float) -> Iterator[socket.socket]:
        """See the contract; the far end of the bridge is ``socat``, since the library forwards no Unix sockets."""
        bridge = self.argv(["socat", "-", socat_address("UNIX-CONNECT", path)], sudo=True)
        with self._channel() as channel:
            try:
                with self._watched(channel, answer_limit()):
                    channel.exec_command(to_bytes(command_line(bridge)))
            except (paramiko.SSHException, EOFError, OSError) as error:
                self.close()
                raise ConnectError(f"{self.name}: the connection was cut on the way to {path}: {error}") from None
            ours, theirs = socket.socketpair()
            with ours, theirs:
                pumps = [
                    threading.Thread(target=hand_on, args=(channel.recv, theirs.sendall, theirs), daemon=True),
                    threading.Thread(target=hand_on, args=(theirs.recv, channel.sendall, channel), daemon=True),
                ]
                for pump in pumps:
                    pump.start()
                ours.settimeout(timeout)
                yield ours

    def ping(self, timeout: float) -> float:
        start = time.monotonic()
        self.connect(timeout)
        try:
            self.run(["true"])
        except CommandError as error:
            raise ConnectError(f"{self.name}: takes a login, but runs no command: {error}") from None
        return time.monotonic() - start


def _make_folders(sftp: paramiko.SFTPClient, folder: bytes) -> None:
    """Like mkdir -p; the usual case, the folder is there, costs one question."""
    if not folder.strip(b"/"):
        return
    try:
        if stat.S_ISDIR(sftp.stat(folder).st_mode or 0):
            return
        raise NotADirectoryError(f"{os.fsdecode(folder)} is not a folder")
    except FileNotFoundError:
        _make_folders(sftp, posixpath.dirname(folder))
        sftp.mkdir(folder, 0o755)
