"""An interactive program on a terminal that controls it: what is typed, what is shown, and that the terminal is closed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>78]|\r")


def _on_its_terminal() -> None:
    """Standard input becomes the terminal that controls the process, which hears of its end, also where the tests run under nohup."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)


class ControllingTerminal:
    """A program in a session of its own: when this terminal is closed, it gets SIGHUP."""

    def __init__(self, command: Sequence[str], cwd: Path, env: Mapping[str, str], columns: int = 100) -> None:
        self._leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
        # PROMPT_TOOLKIT_NO_CPR: this terminal does not answer where its cursor is.
        self.process = subprocess.Popen(
            command, cwd=cwd, env={**env, "TERM": "xterm-256color", "PROMPT_TOOLKIT_NO_CPR": "1"},
            stdin=follower, stdout=follower, stderr=follower, start_new_session=True,
            preexec_fn=_on_its_terminal,
        )  # fmt: skip
        self._follower = follower
        self._raw = b""
        self._from = 0

    def __enter__(self) -> ControllingTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.hang_up()

    @property
    def text(self) -> str:
        """All that was shown, without colours and moves of the cursor."""
        return _SEQUENCE.sub("", self._raw.decode(errors="replace"))

    @property
    def echoes(self) -> bool:
        """Whether the terminal shows what is typed, as it does for a shell before and after a program."""
        return bool(termios.tcgetattr(self._follower)[3] & termios.ECHO)

    def type(self, keys: str) -> None:
        os.write(self._leader, keys.encode())

    def shows(self, text: str, timeout: float = 20) -> None:
        """Wait until the text is there, behind what was waited for before."""
        deadline = time.monotonic() + timeout
        while (found := self.text.find(text, self._from)) < 0:
            assert time.monotonic() < deadline, f"no {text!r} within {timeout:g} s:\n{self.text[self._from :]}"
            assert self._read(0.1) or self.process.poll() is None, f"ended before {text!r}:\n{self.text[self._from :]}"
        self._from = found + len(text)

    def _read(self, timeout: float) -> bool:
        if not select.select([self._leader], [], [], timeout)[0]:
            return False
        self._raw += os.read(self._leader, 65536)
        return True

    def end(self, timeout: float = 20) -> int:
        """Wait for the program's end; returns its exit code."""
        deadline = time.monotonic() + timeout
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"still runs after {timeout:g} s:\n{self.text[self._from :]}"
            if self._leader >= 0:
                self._read(0.05)
            else:
                time.sleep(0.05)
        while self._leader >= 0 and self._read(0):
            pass
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal, as when its window or the connection to it is closed."""
        for descriptor in (self._follower, self._leader):
            if descriptor >= 0:
                os.close(descriptor)
        self._follower = self._leader = -1
