"""How fast 20,000 files of the older tool are read and reported: 10,000 trials, a log and a histogram each.

Run from the repository: ``python -m benchmarks report``. The peer is one Python loop over the lines of the same files in the
same run, so the ratio holds on any machine. It computes the same figures: totals, drop-outs and the line about the samples by a
regular expression each, mean, standard deviation and percentiles from a dictionary. It does not check that a file is whole, and
looks for no copies. The files are read from the page cache: the disk is not what is measured. Of several rounds the
shortest time counts for each: what else runs only adds to it.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from autotest.report.summary import summarise
from autotest.report.trials import read_results
from autotest.results.figures import PERCENTILES
from autotest.results.histogram import Histogram, format_histogram
from autotest.results.names import TrialName, load_latency_infix
from benchmarks.scale import full_or_tiny

TRIALS = full_or_tiny(10_000, 30)
REPETITIONS = 3
SECONDS = 30
SAMPLES = full_or_tiny(11_000, 1_000)
ROUNDS = full_or_tiny(3, 1)
GOAL_RATIO = 10.0

_HEAD = """\
\x1b[1;37m[INFO]  Initializing DPDK. This will take a few seconds...\x1b[0m
EAL: Probing VFIO support...
EAL: PCI device 0000:20:00.0 on NUMA socket 0
EAL:   probe driver: 8086:1521 net_e1000_igb
EAL: PCI device 0000:b0:00.0 on NUMA socket 1
EAL:   probe driver: 8086:10fb net_ixgbe
\x1b[1;33m[WARN]  malloc() allocates objects >= 1 MiB from LuaJIT memory space.\x1b[0m
\x1b[1;37m[INFO]  Found 2 usable devices:\x1b[0m
   Device 0: 02:00:00:00:00:01 (\x1b[0;32mIntel Corporation I350 Gigabit Network Connection\x1b[0m)
   Device 1: 02:00:00:00:00:02 (\x1b[0;32mIntel Corporation 82599ES 10-Gigabit SFI/SFP+ Network Connection\x1b[0m)
PMD: ixgbe_dev_link_status_print():  Port 1: Link Down
\x1b[1;37m[INFO]  Waiting for devices to come up...\x1b[0m
\x1b[1;37m[INFO]  Device 1 (02:00:00:00:00:02) is up: 10000 MBit/s\x1b[0m
\x1b[1;37m[INFO]  \x1b[0;32m1 device is up.\x1b[0m\x1b[0m
"""
_COLOURS = {"RX": "\x1b[1;36m", "TX": "\x1b[0;34m"}
_PEER_TOTAL = re.compile(r"\[Device: id=([0-9]+)\] (RX|TX)\S*: .* total ([0-9]+) packets")
_PEER_RATE = re.compile(r"\[Device: id=([0-9]+)\] (RX|TX)\S*: ([0-9.]+) Mpps, ([0-9.]+) Mbit/s")
_PEER_SAMPLES = re.compile(r"Samples: ([0-9]+), Average: ([0-9.]+) ns")


def measure() -> list[dict[str, Any]]:
    """Figures as dicts of name, value, unit, goal and ratio (the peer's time over ours, None without a peer).

    Where the goal is a ratio, the entry's value and goal are our time and a tenth of the peer's.
    """
    with tempfile.TemporaryDirectory(prefix="autotest-benchmark-") as folder, _cache_in(Path(folder) / "cache"):
        directory = Path(folder) / "results"
        lines = make_results(directory, TRIALS)
        time.sleep(2.1)  # only then are the files old enough to be known as unchanged
        times = [_one_round(directory, Path(folder) / "cache") for _ in range(ROUNDS)]
    peer, cold, warm, report = (min(column) for column in zip(*times, strict=True))
    what = f"{2 * TRIALS} files, {lines / 1e6:.0f} million lines"
    entries = [
        (f"read {what}, no cache", cold, peer / GOAL_RATIO, peer / cold),
        ("the same and their summary, no cache", report, peer / GOAL_RATIO, peer / report),
        ("the same read again, unchanged", warm, peer / GOAL_RATIO, peer / warm),
    ]
    return [dict(zip(("name", "value", "unit", "goal", "ratio"), (n, v, "s", g, r), strict=True)) for n, v, g, r in entries]


def _one_round(directory: Path, cache: Path) -> tuple[float, float, float, float]:
    """Seconds of the peer, of reading without and with a cache, and of a summary without one; one right after the other."""
    peer, expected = _timed(lambda: list(_plain_loop(directory)))
    _forget(cache)
    cold, results = _timed(lambda: read_results(directory))
    assert not results.complaints and len(results.trials) == len(expected)
    for trial, found in zip(results.trials, expected, strict=True):
        ours = trial.figures
        assert ours is not None and ours.mean_ns is not None and ours.std_ns is not None
        percentiles = [getattr(ours, name) for name in PERCENTILES.values()]
        assert [ours.sent, ours.received, len(ours.dropouts), *percentiles] == found[:-2], trial.name
        assert np.allclose([ours.mean_ns, ours.std_ns], found[-2:], rtol=1e-9)
    warm, again = _timed(lambda: read_results(directory))
    assert again == results
    _forget(cache)
    report, text = _timed(lambda: summarise(read_results(directory).trials))
    assert text.count("\n") > TRIALS / REPETITIONS
    return peer, cold, warm, report


def make_results(directory: Path, trials: int) -> int:
    """Fill a directory with such trials of the older tool; returns the number of lines."""
    directory.mkdir()
    random = np.random.default_rng(1)
    lines = 0
    for number in range(trials):
        case, repetition = divmod(number, REPETITIONS)
        rate = 10 + case
        infix = load_latency_infix("pcvm", "bridge", "xdp", rate, 60, SECONDS, "normal", vhost=True, ioregionfd=False)
        name = TrialName(infix, repetition)
        values, counts = np.unique(random.normal(32_000, 750, SAMPLES).astype(np.int64), return_counts=True)
        histogram = Histogram(values, counts)
        output = _output(rate, histogram)
        (directory / name.output).write_text(output, encoding="utf-8")
        (directory / name.histogram).write_bytes(format_histogram(histogram))
        lines += len(values) + output.count("\n")
    return lines


def _output(rate: int, histogram: Histogram) -> str:
    frames = rate * SECONDS * 1000
    rates = [f"{rate / 1000:.2f} Mpps, {rate * 0.512:.0f} Mbit/s ({rate * 0.672:.0f} Mbit/s with framing)\n"] * SECONDS
    mean = f"{rate / 1000:.2f} (StdDev 0.00) Mpps, {rate * 0.512:.0f} (StdDev 1) Mbit/s ({rate * 0.672:.0f} Mbit/s with framing)"
    quartiles = "/".join(f"{value}.0" for value in histogram.percentiles([25, 50, 75]))
    seconds = [_line(direction, each) for each in rates for direction in ("RX", "TX")]
    return "".join(
        [
            _HEAD,
            *seconds,
            (
                f"Samples: {histogram.samples}, Average: {histogram.mean:.1f} ns, StdDev: {histogram.std:.1f} ns, "
                f"Quartiles: {quartiles} ns\n"
            ),
            "\x1b[1;37m[INFO]  Saving histogram to '/tmp/histogram.csv'\x1b[0m\n",
            *(_line(way, f"{mean}, total {frames} packets with {64 * frames} bytes (incl. CRC)\n") for way in ("RX", "TX")),
        ]
    )


def _line(direction: str, text: str) -> str:
    return f"{_COLOURS[direction]}[Device: id=1] {direction}\x1b[0m: {text}"


def _plain_loop(directory: Path) -> Iterator[list[float]]:
    """Sent, received, drop-outs, percentiles, mean and standard deviation of each trial, in the order of their names."""
    for name in sorted(os.listdir(directory)):
        if not name.startswith("output_"):
            continue
        totals = {}
        printed = 0
        rates: dict[str, list[float]] = {"RX": [], "TX": []}
        with open(directory / name, encoding="utf-8") as file:
            for line in file:
                if match := _PEER_TOTAL.search(line):
                    totals[match[2]] = int(match[3])
                elif match := _PEER_RATE.search(line):
                    rates[match[2]].append(float(match[4]))
                elif match := _PEER_SAMPLES.search(line):
                    printed = int(match[1])
        dropouts = sum(received == 0 and sent >= 5 for received, sent in zip(rates["RX"], rates["TX"], strict=True))
        counts = {}
        with open(directory / f"histogram_{name.removeprefix('output_').removesuffix('.log')}.csv", encoding="ascii") as file:
            for line in file:
                value, count = line.split(",")
                counts[int(value)] = int(count)
        assert printed == sum(counts.values())
        yield [totals["TX"], totals["RX"], dropouts, *_plain_figures(counts)]


def _plain_figures(counts: dict[int, int]) -> list[float]:
    samples = sum(counts.values())
    ranks = [max(1, -(-round(percent * 1000) * samples // 100_000)) for percent in PERCENTILES]
    percentiles: list[float] = []
    cumulated = 0
    for value in sorted(counts):
        cumulated += counts[value]
        while len(percentiles) < len(ranks) and cumulated >= ranks[len(percentiles)]:
            percentiles.append(value)
    mean = sum(value * count for value, count in counts.items()) / samples
    variance = sum((value - mean) ** 2 * count for value, count in counts.items()) / (samples - 1)
    return [*percentiles, mean, variance**0.5]


class _cache_in:
    """For a while, the user's cache folder is another one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._before = os.environ.get("XDG_CACHE_HOME")
        os.environ["XDG_CACHE_HOME"] = str(self._folder)

    def __exit__(self, *_: object) -> None:
        if self._before is None:
            del os.environ["XDG_CACHE_HOME"]
        else:
            os.environ["XDG_CACHE_HOME"] = self._before


def _forget(cache: Path) -> None:
    for path in cache.rglob("*.json"):
        path.unlink()


def _timed(action: Callable[[], Any]) -> tuple[float, Any]:
    start = time.perf_counter()
    found = action()
    return time.perf_counter() - start, found
