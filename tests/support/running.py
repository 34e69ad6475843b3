"""A campaign that runs while a test breaks something: its log as it comes, its trials, its processes, its guest."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from labtest import CampaignFile, LabCommand
from traces import NAME, left_since

SENDING = "load paced by"  # what the generator says just before it sends
_POLL = 0.02  # seconds


class RunningCampaign:
    """``test-load-lat-file`` at work. ``kind`` is what follows in the names of the lab: nothing, or ``-ssh``."""

    def __init__(self, lab: LabCommand, tests: CampaignFile, kind: str = "") -> None:
        self._lab = lab
        self._kind = kind
        self._lines: list[str] = []
        self._seen = ""
        self._boots = 0
        self._process = lab.start("test-load-lat-file", str(tests.file))
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> "RunningCampaign":
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            try:
                self._process.wait(60)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()
        self._reader.join()
        print(self.log)  # pytest shows it where the test fails

    def _read(self) -> None:
        for line in self._process.stderr:
            self._lines.append(line)

    @property
    def log(self) -> str:
        return "".join(self._lines)

    def wait_for(self, condition: Callable[[], object], what: str, timeout: float = 60) -> None:
        deadline = time.monotonic() + timeout
        while not condition():
            assert self._process.poll() is None, f"ended before {what}:\n{self.log}"
            assert time.monotonic() < deadline, f"no {what} within {timeout:g} s:\n{self.log}"
            time.sleep(_POLL)

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def logged(self, text: str, timeout: float = 60) -> None:
        """Wait until the campaign has logged the text."""
        self.wait_for(lambda: text in self.log, repr(text), timeout)

    def next_trial(self) -> int:
        """Wait until the generator of a trial that was not seen before sends; returns its process."""
        folder = self.state_folder("loadgen")

        def sends() -> bool:
            noted, log = folder / "l2-load-latency.pid", folder / "l2-load-latency.log"
            try:
                return noted.read_text() not in ("", self._seen) and SENDING in log.read_text(errors="replace")
            except FileNotFoundError:
                return False

        self.wait_for(sends, "trial")
        self._seen = (folder / "l2-load-latency.pid").read_text()
        time.sleep(0.3)
        return self.process("l2-load-latency")

    def process(self, session: str) -> int:
        """The process of ``guest``, ``l2-load-latency`` or ``reflector`` on this machine."""
        server = "loadgen" if session == "l2-load-latency" else "host"
        return int((self.state_folder(server) / f"{session}.pid").read_text().split()[0])

    def state_folder(self, server: str) -> Path:
        return Path("/run/autotest", f"{NAME}{self._kind}" + (f"-{server}" if self._kind else ""))

    def next_boot(self) -> None:
        """Wait until another guest takes logins."""
        self._boots += 1
        self.wait_for(lambda: self.log.count("s after QEMU's start") >= self._boots, f"boot {self._boots}")

    def in_guest(self, command: str, frames: int = 1000) -> None:
        """Have the guest run a shell command when it has received that many frames: in the trial, and not over SSH."""
        counted = "/sys/class/net/test/statistics/rx_packets"
        loop = f"while [ $now -lt $((first + {frames})) ]; do sleep 0.5; read now <{counted}; done"
        wait = f"read first <{counted}; now=$first; {loop}"
        script = f"nohup sh -c '{wait}; {command}' >/dev/null 2>&1 &"
        ssh = ["ssh", "-F", f"/run/{NAME}-lab{self._kind}/ssh_config", "autotest-guest", script]
        where = [] if self._kind else ["ip", "netns", "exec", f"{NAME}-host"]
        subprocess.run([*where, *ssh], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)

    def end(self, code: int = 0, timeout: float = 120) -> str:
        """Wait for the end, look at the exit code and that the campaign itself left nothing; returns the log."""
        try:
            self._process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still runs after {timeout:g} s:\n{self.log}") from None
        self._reader.join()
        assert self._process.returncode == code, f"exit code {self._process.returncode}\n{self.log}"
        assert "Traceback" not in self.log, self.log
        assert left_since(self._lab.before) == []
        return self.log


def kill(process: int) -> None:
    os.kill(process, signal.SIGKILL)


def stop(process: int) -> None:
    os.kill(process, signal.SIGSTOP)


def inside(server: str, *command: str, kind: str = "") -> str:
    """Run a command in the namespace of host or loadgen."""
    where = ["ip", "netns", "exec", f"{NAME}{kind}-{server}"]
    return subprocess.run([*where, *command], check=True, capture_output=True, text=True, timeout=10).stdout
