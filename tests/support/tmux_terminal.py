"""A terminal of tmux with an interactive program in it, which may draw what it likes: to type into and to look at."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_SECONDS = 20.0  # for anything to appear; machines that run tests are slow at times


class TmuxTerminal:
    """What its keys and its screen are."""

    def __init__(self, socket: Path) -> None:
        self._tmux = ["tmux", "-S", str(socket), "-f", "/dev/null"]

    def tmux(self, *arguments: str, check: bool = True) -> str:
        command = [*self._tmux, *arguments]
        return subprocess.run(command, check=check, capture_output=True, text=True, timeout=_SECONDS).stdout

    def type(self, text: str) -> None:
        self.tmux("send-keys", "-l", "--", text)

    def press(self, *keys: str) -> None:
        """Keys by tmux's names, like ``Tab`` and ``C-c``."""
        self.tmux("send-keys", *keys)

    def screen(self) -> str:
        """The text on it."""
        return self.tmux("capture-pane", "-p").strip()

    def wait_for(self, *texts: str) -> str:
        """The screen, once it holds all these texts."""
        deadline = time.monotonic() + _SECONDS
        while not all(text in (screen := self.screen()) for text in texts):
            assert time.monotonic() < deadline, f"expected {texts} on the screen:\n{screen}"
            time.sleep(0.03)
        return screen

    def wait_until_only(self, text: str) -> None:
        """Nothing else is on the screen."""
        deadline = time.monotonic() + _SECONDS
        while (screen := self.screen()) != text:
            assert time.monotonic() < deadline, f"expected only {text!r} on the screen:\n{screen}"
            time.sleep(0.03)


@contextmanager
def tmux_terminal(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[TmuxTerminal]:
    """One of 200 columns and 50 rows, in which the command runs in the folder, with that environment and no other."""
    opened = TmuxTerminal(folder / "terminal.sock")
    program = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), *command]
    opened.tmux("new-session", "-d", "-x", "200", "-y", "50", "-c", str(folder), *program)
    try:
        yield opened
    finally:
        opened.tmux("kill-server", check=False)
