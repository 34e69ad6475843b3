"""One end of a wire between two network namespaces, and MoonGen programs run by softmoon there."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MOONPROGS = ROOT / "moonprogs"
MOONGEN = MOONPROGS / "softmoon" / "bin" / "MoonGen"
LOADGEN_MAC, DUT_MAC = "52:54:00:aa:00:01", "52:54:00:aa:00:02"


def run(*command: str | Path, check: bool = True, timeout: float = 30) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, output captured as text."""
    return subprocess.run([str(word) for word in command], check=check, capture_output=True, text=True, timeout=timeout)


def wait_until(condition: Callable[[], object], what: str, seconds: float = 5) -> None:
    """Poll a condition; fail with what was waited for when the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} not within {seconds} s"
        time.sleep(0.01)


@dataclass
class Machine:
    """One end of the wire: a namespace with the interface `veth0`."""

    namespace: str
    config: Path
    processes: list[subprocess.Popen] = field(default_factory=list)

    def command(self, program: str | Path, *arguments: object) -> list[str]:
        path = MOONPROGS / program  # an absolute path stays itself
        return [
            "ip",
            "netns",
            "exec",
            self.namespace,
            str(MOONGEN),
            str(path),
            f"--dpdk-config={self.config}",
            *map(str, arguments),
        ]

    def moongen(self, program: str | Path, *arguments: object, timeout: float = 20) -> subprocess.CompletedProcess[str]:
        """Run a MoonGen program to its end."""
        return run(*self.command(program, *arguments), check=False, timeout=timeout)

    def start(self, program: str | Path, *arguments: object, log: Path) -> subprocess.Popen:
        """Start a MoonGen program that writes to `log`; it is ended with the test."""
        with log.open("w") as output:
            process = subprocess.Popen(self.command(program, *arguments), stdout=output, stderr=subprocess.STDOUT)
        self.processes.append(process)
        return process

    def start_reflector(self, log: Path) -> subprocess.Popen:
        process = self.start("reflector.lua", 0, log=log)
        wait_until(lambda: "reflector ready" in log.read_text(), "reflector ready", 10)
        return process

    def ip(self, *words: str) -> None:
        run("ip", "-n", self.namespace, *words)

    def counter(self, name: str) -> int:
        """A counter of the kernel for veth0, for example tx_packets."""
        path = f"/sys/class/net/veth0/statistics/{name}"
        return int(run("ip", "netns", "exec", self.namespace, "cat", path).stdout)

    def attach_xdp(self, source: Path, directory: Path) -> None:
        compiled = directory / f"{source.name}.o"
        run("clang", "-O2", "-g", "-mcpu=v3", "-target", "bpf", "-c", source, "-o", compiled)
        self.ip("link", "set", "dev", "veth0", "xdpgeneric", "obj", str(compiled), "sec", "xdp")

    def end_processes(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                try:
                    process.wait(5)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
        self.processes.clear()


@dataclass(frozen=True)
class Wire:
    loadgen: Machine
    dut: Machine
