"""How good softmoon is as a generator: against trafgen, against the clock, and against its own reflector.

    python -m benchmarks softmoon

Needs root, luajit, iproute2 and trafgen (package netsniff-ng). Sends only inside two network namespaces of its own.
Figures that are compared are taken in turns in one run, because the machine may be busy with other things.
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scale import full_or_tiny

MOONPROGS = Path(__file__).resolve().parents[1] / "moonprogs"
MOONGEN = MOONPROGS / "softmoon" / "bin" / "MoonGen"
LOADGEN_MAC, DUT_MAC = "52:54:00:aa:00:01", "52:54:00:aa:00:02"

ROUNDS = full_or_tiny(5, 1)
MAX_RATE_SECONDS = full_or_tiny(2.0, 0.2)
TRAFGEN_FRAMES = full_or_tiny(3_000_000, 10_000)
RATES_KPPS = full_or_tiny((1, 10, 50, 100), (1,))
LOAD_SECONDS = full_or_tiny(2, 1)
GOAL_RATE_ERROR = 0.001
GOAL_MEDIAN_US = 7.0
GUESTS = 255
GOAL_GUESTS_SHARE = 0.95  # of the rate to one guest: what two medians of the same thing differ by


def _run(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, check=check, capture_output=True, text=True, timeout=120)


@contextmanager
def _wire() -> Iterator[tuple[str, str]]:
    """Two namespaces, each with one end of a veth pair named veth0."""
    names = [f"at-moon-{os.getpid()}-{end}" for end in "ab"]
    try:
        for name in names:
            _run("ip", "netns", "add", name)
            _run("ip", "netns", "exec", name, "sysctl", "-qw", "net.ipv6.conf.default.disable_ipv6=1")
        _run(
            "ip",
            "-n",
            names[0],
            "link",
            "add",
            "veth0",
            "address",
            LOADGEN_MAC,
            "type",
            "veth",
            "peer",
            "name",
            "veth0",
            "netns",
            names[1],
            "address",
            DUT_MAC,
        )
        for name in names:
            _run("ip", "-n", name, "link", "set", "veth0", "up")
        yield names[0], names[1]
    finally:
        for name in names:
            _run("ip", "netns", "del", name, check=False)


class Lab:
    """The wire, and the programs that are compared on it."""

    def __init__(self, loadgen: str, dut: str, directory: Path) -> None:
        self.loadgen, self.dut, self.directory = loadgen, dut, directory
        self.config = directory / "dpdk-conf.lua"
        self.config.write_text('DPDKConfig { cli = { "--vdev", "net_af_packet0,iface=veth0" } }\n')

    def _moongen(self, namespace: str, program: str, *arguments: object) -> list[str]:
        return [
            "ip",
            "netns",
            "exec",
            namespace,
            str(MOONGEN),
            str(MOONPROGS / program),
            f"--dpdk-config={self.config}",
            *map(str, arguments),
        ]

    def load(self, rate_kpps: float, seconds: float, *options: object) -> str:
        """Output of a load; whether samples came back is the caller's business."""
        command = self._moongen(
            self.loadgen,
            "l2-load-latency.lua",
            0,
            DUT_MAC,
            "-r",
            rate_kpps,
            "-T",
            seconds,
            "-f",
            self.directory / "histogram.csv",
            *options,
        )
        return _run(*command, check=False).stdout

    def sent_frames(self) -> int:
        path = "/sys/class/net/veth0/statistics/tx_packets"
        return int(_run("ip", "netns", "exec", self.loadgen, "cat", path).stdout)

    def softmoon_kpps(self, *options: object) -> float:
        """Frames per second by the kernel's count, at more load than can be sent."""
        before = self.sent_frames()
        output = self.load(100_000, MAX_RATE_SECONDS, "--drain", 0, *options)
        seconds = float(re.search(r"Test frames: sent \d+ in ([\d.]+) s", output)[1])
        return (self.sent_frames() - before) / seconds / 1e3

    def trafgen_kpps(self) -> float:
        """The same frame from trafgen, one process, by the kernel's count and trafgen's clock."""
        packet = self.directory / "frame.cfg"
        bytes_of = ",".join(f"0x{part}" for part in (DUT_MAC + ":" + LOADGEN_MAC).split(":"))
        packet.write_text(f"{{ {bytes_of}, 0x12, 0x34, fill(0, 46) }}\n")
        before = self.sent_frames()
        output = _run(
            "ip",
            "netns",
            "exec",
            self.loadgen,
            "trafgen",
            "--in",
            str(packet),
            "--out",
            "veth0",
            "--num",
            str(TRAFGEN_FRAMES),
            "--cpus",
            "1",
        ).stdout
        match = re.search(r"(\d+) sec, (\d+) usec", output)
        return (self.sent_frames() - before) / (int(match[1]) + int(match[2]) / 1e6) / 1e3

    @contextmanager
    def reflector(self) -> Iterator[None]:
        log = self.directory / "reflector.log"
        with log.open("w") as output:
            process = subprocess.Popen(self._moongen(self.dut, "reflector.lua", 0), stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 10
            while "reflector ready" not in log.read_text():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"the reflector did not start: {log.read_text()}")
                time.sleep(0.02)
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(10)


def _measure_max_rate(lab: Lab) -> dict:
    ours, theirs = [], []
    for _ in range(ROUNDS):
        theirs.append(lab.trafgen_kpps())
        ours.append(lab.softmoon_kpps())
    # each pair shares the machine's mood
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=False))
    return {
        "name": "maximum rate, against trafgen",
        "unit": "kpps",
        "value": statistics.median(ours),
        "reference": statistics.median(theirs),
        "ratio": ratio,
    }


def _measure_shares(lab: Lab) -> list[dict]:
    """The maximum rate in other set-ups, each against one load task that sends to one guest."""
    one, tasks, guests = [], [], []
    for _ in range(ROUNDS):
        one.append(lab.softmoon_kpps())
        tasks.append(lab.softmoon_kpps("--threads", 2))
        guests.append(lab.softmoon_kpps("--count", GUESTS))

    def row(name: str, rates: list[float], share: float) -> dict:
        ratio = statistics.median(rate / single for rate, single in zip(rates, one, strict=False)) / share
        return {
            "name": name,
            "unit": "kpps",
            "value": statistics.median(rates),
            "ratio": ratio,
            "reference": statistics.median(one),
        }

    return [
        row("maximum rate of 2 load tasks, against 1", tasks, 1),
        row(f"maximum rate to {GUESTS} guests, against {GOAL_GUESTS_SHARE:.0%} of that to 1", guests, GOAL_GUESTS_SHARE),
    ]


def _measure_rate_error(lab: Lab, rate_kpps: float) -> dict:
    seconds, errors = LOAD_SECONDS, []
    for _ in range(ROUNDS):
        before = lab.sent_frames()
        lab.load(rate_kpps, seconds)
        errors.append(abs((lab.sent_frames() - before) / (rate_kpps * 1e3 * seconds) - 1))
    error = statistics.median(errors)
    return {
        "name": f"rate error at {rate_kpps} kpps",
        "unit": "%",
        "value": error * 100,
        "reference": GOAL_RATE_ERROR * 100,
        "ratio": GOAL_RATE_ERROR / max(error, 1e-6),
    }


def _measure_median(lab: Lab) -> dict:
    medians = []
    for _ in range(ROUNDS):
        output = lab.load(100, LOAD_SECONDS)
        medians.append(float(re.search(r"Quartiles: [\d.]+/([\d.]+)/", output)[1]) / 1e3)
    median = statistics.median(medians)
    return {
        "name": "median round trip at 100 kpps, own reflector",
        "unit": "us",
        "value": median,
        "reference": GOAL_MEDIAN_US,
        "ratio": GOAL_MEDIAN_US / median,
    }


def measure() -> list[dict]:
    """One row per figure: name, value, reference (another program's figure, or the goal), unit, and ratio.

    The ratio is such that 1 or more is as good as the reference or better.
    """
    with _wire() as (loadgen, dut), tempfile.TemporaryDirectory() as directory:
        lab = Lab(loadgen, dut, Path(directory))
        rows = [_measure_max_rate(lab), *_measure_shares(lab)]
        with lab.reflector():
            rows += [_measure_rate_error(lab, rate) for rate in RATES_KPPS]
            rows.append(_measure_median(lab))
        return rows
