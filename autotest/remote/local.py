"""Commands on this machine, in a network namespace of it if one is named."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from autotest.errors import CommandError, ConnectError
from autotest.remote.transport import (
    MOST_READ,
    TIMEOUT_CODES,
    Result,
    Transport,
    full_command,
    require_text,
    socat_address,
    temporary_beside,
)

_GRACE = 2.0  # seconds that timeout(1) gets before the command counts as hanging


class LocalTransport(Transport):
    """This machine; see :class:`autotest.remote.transport.Transport`."""

    is_local = True

    def __init__(self, name: str, netns: str | None = None) -> None:
        super().__init__(name)
        self.netns = netns

    @property
    def outside(self) -> LocalTransport:
        return LocalTransport(self.name) if self.netns else self

    def has_network(self) -> bool:
        return self.netns is None or os.path.exists(f"/run/netns/{self.netns}")

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    def argv(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        sudo: bool = False,
    ) -> list[str]:
        """The arguments as they are really run. Entering a namespace takes root, so it implies sudo."""
        needs_root = sudo or self.netns is not None
        return full_command(command, env=env, cwd=cwd, sudo=needs_root and not self.is_root, netns=self.netns)

    def connect(self, timeout: float | None = None) -> None:
        pass

    def _bounded(self, command: Sequence[str], timeout: float) -> Sequence[str]:
        # What sudo started cannot be ended from here: it ends itself.
        return command if self.is_root else ["timeout", "-k", "1", f"{timeout:g}", *command]

    def _execute(self, command: Sequence[str], argv: Sequence[str], data: bytes | None, timeout: float) -> Result:
        start = time.monotonic()
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if data is not None else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            return Result(tuple(command), 127, "", str(error))  # the code that a shell gives
        with process:
            try:
                stdout, stderr = process.communicate(data, timeout if self.is_root else timeout + _GRACE)
            except subprocess.TimeoutExpired:
                _end_group(process)
                raise self._timed_out(command, timeout) from None
            except BaseException:  # Ctrl-C: nothing of ours stays behind
                _end_group(process)
                raise
        if not self.is_root and process.returncode in TIMEOUT_CODES and time.monotonic() - start >= timeout:
            raise self._timed_out(command, timeout, stderr.decode(errors="replace"))
        code = process.returncode if process.returncode >= 0 else 128 - process.returncode  # as a shell tells it
        return Result(tuple(command), code, stdout.decode(errors="replace"), stderr.decode(errors="replace"))

    def put(self, source: Path, target: str, mode: int = 0o644) -> None:
        require_text("a path", str(source), target)
        if os.path.exists(target) and os.path.samefile(source, target):
            return
        temporary = temporary_beside(target, self.note_temporary)
        self._copy(source, target, temporary, mode)
        self.temporary_is_gone(temporary)

    @staticmethod
    def _copy(source: Path, target: str, temporary: str, mode: int) -> None:
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        try:
            with _naming(target), open(source, "rb") as content, open(_create(temporary, mode), "wb") as file:
                shutil.copyfileobj(content, file)
            os.replace(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)

    def get(self, source: str, target: Path) -> None:
        require_text("a path", source, str(target))
        self._copy(Path(source), str(target), temporary_beside(str(target)), 0o644)

    def read(self, source: str) -> str | None:
        require_text("a path", source)
        try:
            return Path(source).read_bytes().decode(errors="replace")
        except FileNotFoundError:
            return None

    def read_from(self, source: str, start: int) -> bytes:
        require_text("a path", source)
        try:
            with open(source, "rb") as file:
                file.seek(start)
                return file.read(MOST_READ)
        except FileNotFoundError:
            return b""

    def write(self, target: str, content: str, mode: int = 0o644) -> None:
        require_text("a path", target)
        temporary = temporary_beside(target, self.note_temporary)
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        try:
            with _naming(target), open(_create(temporary, mode), "wb") as file:
                file.write(content.encode())
            os.replace(temporary, target)
        finally:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
        self.temporary_is_gone(temporary)

    @contextmanager
    def connect_unix(self, path: str, timeout: float) -> Iterator[socket.socket]:
        require_text("a path", path)
        if self.is_root:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                connection.settimeout(timeout)
                try:
                    connection.connect(path)
                except OSError as error:
                    raise ConnectError(f"{self.name}: {path}: {error}") from None
                yield connection
            return
        # The socket of what sudo started is root's alone.
        ours, theirs = socket.socketpair()
        with ours, theirs:
            command = self.argv(["socat", "-", socat_address("UNIX-CONNECT", path)], sudo=True)
            with subprocess.Popen(command, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=subprocess.DEVNULL):
                theirs.close()
                ours.settimeout(timeout)
                try:
                    yield ours
                finally:
                    ours.close()  # socat ends when its peer is gone

    def ping(self, timeout: float) -> float:
        start = time.monotonic()
        try:
            self.run(["true"], timeout=timeout)
        except CommandError as error:
            raise ConnectError(str(error)) from None
        return time.monotonic() - start

    def close(self) -> None:
        pass


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Whatever does not work gets the file's name: writing to a full disk comes without one."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = path
        raise


def _create(path: str, mode: int) -> int:
    """A new file of that mode from its first moment on, whatever the umask is; returns its descriptor."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    os.fchmod(descriptor, mode)
    return descriptor


def _end_group(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
