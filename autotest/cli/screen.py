"""Lines that stay at the bottom of a terminal and are drawn again and again, while what is written scrolls above them.

All that goes to the terminal goes through one thread. So a terminal that takes its time, or is stopped with Ctrl-S, holds up
nobody, and an interruption of the main thread leaves no half a line behind. The cursor is never hidden and no mode of the
terminal is changed: however the process ends, there is nothing to restore.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

log = logging.getLogger(__name__)

#: Seconds between two frames: what counts seconds is drawn once a second.
INTERVAL: Final = 1.0
_SHORTEST: Final = 0.1  # seconds between two frames, however much happens
_STOPPED: Final = 1.0  # seconds beyond those between two frames, after which the process was stopped, as by Ctrl-Z
_STOP_TIMEOUT: Final = 2.0  # seconds in which a terminal takes the last of it
_WRITABLE_TIMEOUT: Final = 1.0  # seconds between looks whether a terminal that takes nothing is to be left
_USUAL_SIZE: Final = os.terminal_size((80, 24))


class Line(NamedTuple):
    """One line of a frame: with its control sequences for colours, and how many columns it takes."""

    text: str
    columns: int


Frame = Callable[[os.terminal_size], Sequence[Line]]
"""The lines for a terminal of that size. It is called in the thread of the screen."""


class Screen:
    """The terminal behind a file descriptor. It can be written to like a text file, whole lines at a time."""

    def __init__(self, descriptor: int, frame: Frame, encoding: str = "utf-8") -> None:
        self._descriptor = descriptor
        self._frame = frame
        self._encoding = encoding
        self._written: SimpleQueue[str] = SimpleQueue()
        self._shown: Sequence[Line] = ()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._is_gone = False
        self._thread = threading.Thread(target=self._work, name="screen", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Show the last of what was written, and remove the frame. Returns without, when the terminal does not take it."""
        self._stopping.set()
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT)

    def draw(self) -> None:
        """Draw the frame anew, soon."""
        self._wake.set()

    def write(self, text: str) -> int:
        self._written.put(text)
        self._wake.set()
        return len(text)

    def flush(self) -> None:
        """For who takes it for a file; it is shown soon."""

    # -- in the thread -------------------------------------------------------------------------------------

    def _work(self) -> None:
        while not self._stopping.is_set():
            self._wake.clear()
            self._show(self._lines)
            begin = time.monotonic()
            if not self._stopping.wait(_SHORTEST):
                self._wake.wait(INTERVAL - _SHORTEST)
            if time.monotonic() - begin > INTERVAL + _STOPPED:
                self._shown = ()  # what others wrote stands below the last frame, and must not be erased in its stead
        self._show(lambda size: ())

    def _lines(self, size: os.terminal_size) -> Sequence[Line]:
        try:
            return self._frame(size)[-max(1, size.lines - 1) :]  # one is for the cursor
        except Exception as error:  # noqa: BLE001  # whatever is wrong with a frame, the log goes on
            self._frame = lambda size: ()
            log.error("the display has ended: %r", error)
            return ()

    def _show(self, frame: Frame) -> None:
        """What was written since, and the frame below it, instead of the one before."""
        size = self._size()
        lines = frame(size)
        erase = _erase(self._shown, size.columns)
        text = "".join(self._take())
        self._shown = lines
        self._send(erase + text + "".join(f"{line.text}\r\n" for line in lines))

    def _take(self) -> list[str]:
        taken = []
        with suppress(Empty):
            while True:
                taken.append(self._written.get_nowait())
        return taken

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._descriptor)
        except OSError:
            return _USUAL_SIZE
        return size if size.columns and size.lines else _USUAL_SIZE  # a pseudo-terminal whose size nobody set

    def _send(self, text: str) -> None:
        data = memoryview(text.encode(self._encoding, "replace"))
        while data and not self._is_gone:
            try:
                data = data[os.write(self._descriptor, data) :]
            except BlockingIOError:  # somebody who has it, too, made it so
                select.select([], [self._descriptor], [], _WRITABLE_TIMEOUT)
            except OSError:  # the terminal was closed: the run goes on, and SIGHUP says what is to become of it
                self._is_gone = True


def _erase(lines: Sequence[Line], columns: int) -> str:
    """Removes lines that were drawn last, from a terminal that has wrapped those which do not fit it any more.

    The cursor stands on the line below them, with what a user has typed, like ``^C``. Line by line: what is cleared at once from
    the top of the screen on, tmux takes for something to be kept in its history.
    """
    rows = sum(max(1, -(-line.columns // columns)) for line in lines)
    return "\r\x1b[2K" + "\x1b[A\x1b[2K" * rows if rows else ""
