"""How fast repetitions are summed: 100 test cases, 3 repetitions each, 20,000 lines per histogram.

Run from the repository: ``python -m benchmarks accumulate``. The peer is a plain Python loop over the same
files in the same run, so the ratio holds on any machine; it neither checks verdicts nor checksums.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autotest.results.accumulate import STATE_FILE, accumulate
from autotest.results.names import TrialName, load_latency_infix
from autotest.results.store import ResultStore
from benchmarks.scale import full_or_tiny

CASES = full_or_tiny(100, 2)
REPETITIONS = 3
LINES = full_or_tiny(20_000, 2_000)
NAMES = full_or_tiny(1_000_000, 1_000)
GOAL_SUM_S = 0.4
GOAL_UNCHANGED_S = 0.05
GOAL_NAMES_S = 3.0

_OUTPUT = "".join(
    f"[Device: id=0] {direction}: 0.01 (StdDev 0.00) Mpps, 5 (StdDev 0) Mbit/s (7 Mbit/s with framing), "
    "total 300000 packets with 19200000 bytes (incl. CRC)\n"
    for direction in ("RX", "TX")
)


def measure() -> list[dict[str, Any]]:
    """Figures as dicts of name, value, unit, goal and ratio (the peer's time over ours, None without a peer)."""
    with tempfile.TemporaryDirectory() as directory:
        outputdir = Path(directory)
        infixes = _make_results(outputdir)
        first = statistics.median(_sum_afresh(outputdir) for _ in range(5))
        expected = {infix: (outputdir / f"acc_histogram_{infix}.csv").read_bytes() for infix in infixes}
        time.sleep(2.1)  # only then are files old enough to be known as unchanged
        accumulate(outputdir)
        again = statistics.median(_timed(lambda: accumulate(outputdir)) for _ in range(5))
        peer = _timed(lambda: [_plain_sum(outputdir, infix) for infix in infixes])
        for infix, content in expected.items():
            assert (outputdir / f"plain_{infix}").read_bytes() == content, infix
        unmeasured = _timed(lambda: _ask(outputdir))
    entries = [
        (f"sum {CASES} cases x {REPETITIONS} repetitions x {LINES} lines", first, GOAL_SUM_S, peer / first),
        ("the same once more, nothing changed", again, GOAL_UNCHANGED_S, peer / again),
        (f"ask for {NAMES} names whether they are done", unmeasured, GOAL_NAMES_S, None),
    ]
    return [dict(zip(("name", "value", "unit", "goal", "ratio"), (n, v, "s", g, r), strict=True)) for n, v, g, r in entries]


def _make_results(outputdir: Path) -> list[str]:
    random.seed(1)
    infixes = [
        load_latency_infix("pcvm", "bridge", "xdp", 10 + case, 60, 30, "normal", vhost=True, ioregionfd=False)
        for case in range(CASES)
    ]
    store = ResultStore(outputdir)
    for infix in infixes:
        for repetition in range(REPETITIONS):
            files = {"output": _OUTPUT, "histogram": _latencies()}
            store.commit(TrialName(infix, repetition), files, {"verdict": "valid"})
    return infixes


def _latencies() -> str:
    """A histogram shaped like real ones: a dense core and a long, thin tail, around 30 us."""
    counts: Counter[int] = Counter()
    while len(counts) < LINES:
        counts.update(int(random.lognormvariate(10.3, 0.5)) for _ in range(1_000))
    return "".join(f"{value},{counts[value]}\n" for value in sorted(counts)[:LINES])


def _sum_afresh(outputdir: Path) -> float:
    for path in outputdir.glob("acc_histogram_*.csv"):
        path.unlink()
    (outputdir / STATE_FILE).unlink(missing_ok=True)
    start = time.perf_counter()
    cases = accumulate(outputdir)
    seconds = time.perf_counter() - start
    assert all(case.changed and len(case.repetitions) == REPETITIONS for case in cases)
    return seconds


def _plain_sum(outputdir: Path, infix: str) -> None:
    total: Counter[int] = Counter()
    for repetition in range(REPETITIONS):
        with open(outputdir / f"histogram_{infix}_rep{repetition}.csv", encoding="ascii") as file:
            for line in file:
                value, count = line.split(",")
                total[int(value)] += int(count)
    with open(outputdir / f"plain_{infix}", "w", encoding="ascii") as file:
        for value in sorted(total):
            file.write(f"{value},{total[value]}\n")


def _ask(outputdir: Path) -> None:
    store = ResultStore(outputdir)
    assert not any(
        store.is_done(TrialName(f"pcvm_macvtap_normal_vhoston_ioregionfdoff_xdp_{rate}kpps_60B_30s", repetition))
        for rate in range(NAMES // 10)
        for repetition in range(10)
    )


def _timed(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start
