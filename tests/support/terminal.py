"""A program on a terminal of its own, and what a user sees there."""

from __future__ import annotations

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from types import TracebackType

from labtest import interruptible

_TOKEN = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])|(\r)|(\n)|([^\r\n])")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_POLL = 0.01  # seconds
_GONE = {"CI", "NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES"}


class Terminal:
    """Runs the arguments with all three streams on a pseudo-terminal. What it writes is read as it comes, unless ``stalled``."""

    def __init__(
        self,
        arguments: Sequence[str],
        columns: int = 80,
        rows: int = 24,
        stalled: bool = False,
        environment: Mapping[str, str] = {},
    ) -> None:
        self.columns = columns
        self.data = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()
        self._reading = threading.Event()
        if not stalled:
            self._reading.set()
        self._ours, theirs = pty.openpty()
        self.resize(columns, rows)
        inherited = {name: value for name, value in os.environ.items() if name not in _GONE}
        self.process = subprocess.Popen(
            arguments, stdin=theirs, stdout=theirs, stderr=theirs, env={**inherited, "TERM": "xterm-256color", **environment},
            preexec_fn=interruptible,
        )  # fmt: skip
        os.close(theirs)
        self._closing = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.wait()
        self.close()

    def _read(self) -> None:
        self._reading.wait()
        while not self._closing:
            if select.select([self._ours], [], [], 0.05)[0]:
                try:
                    found = os.read(self._ours, 65536)
                except OSError:  # nobody has the other end any more
                    return
                self.data += self._decoder.decode(found)

    def reads(self) -> None:
        """A terminal that was stalled takes what is written."""
        self._reading.set()

    def resize(self, columns: int, rows: int) -> None:
        self.columns = columns
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def close(self) -> None:
        """The terminal is gone."""
        if not self._closing:
            self._closing = True
            self._reading.set()
            self._reader.join()
            os.close(self._ours)

    def wait_for(self, text: str, timeout: float = 20) -> None:
        """Until it is or was seen on one line."""
        deadline = time.monotonic() + timeout
        while text not in self.data_without_colours:
            assert time.monotonic() < deadline, f"no {text!r} within {timeout:g} s:\n{self.seen()}"
            time.sleep(_POLL)

    def end(self, timeout: float = 20) -> int:
        """The exit code; all that was written is read then."""
        code = self.process.wait(timeout)
        self._reader.join(timeout)
        return code

    @property
    def data_without_colours(self) -> str:
        """All that was written."""
        return _COLOUR.sub("", self.data)

    def seen(self) -> str:
        """What stands on the terminal, above its top too, without colours."""
        return "\n".join(line.rstrip() for line in screen(self.data, self.columns)).rstrip()


def screen(data: str, columns: int) -> list[str]:
    """The lines of a terminal that was given this, and is as long as it must be. Other sequences than colours and these are refused."""
    lines, row, column = [""], 0, 0
    for code, command, carriage_return, line_feed, char in _TOKEN.findall(data):
        if carriage_return:
            column = 0
        elif line_feed:
            row += 1
        elif command == "A":
            row -= int(code or 1)
            assert row >= 0, "above the first line"
        elif command == "K":
            assert code == "2"
            lines[row] = ""
        elif command:
            assert command == "m", f"unexpected: {command}"
        else:
            if column == columns:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            lines[row] = lines[row][:column].ljust(column) + char + lines[row][column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return lines
