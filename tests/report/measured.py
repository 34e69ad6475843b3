"""Output directories with as many repetitions as a test wants, whose figures scatter like measured ones."""

from __future__ import annotations

import random
from itertools import count
from pathlib import Path

import sample_output as sample
from example import BRIDGE

from autotest.results.figures import figures, verdict
from autotest.results.histogram import parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore

_SECONDS = BRIDGE["runtime"]
_runs = count()


def measure(
    directory: Path,
    repetitions: int,
    chance: random.Random,
    *,
    rates: tuple[int, ...] = (10, 20, 40),
    latency_ns: float = 100_000,
    noise: float = 0.02,
    loss: float = 0.0,
    achieved: float = 1.0,
    **parameters: object,
) -> Path:
    """Add trials of the bridge set-up to a directory: normal noise on the latency and, where there is any, on the loss."""
    for rate in rates:
        infix = LoadLatencyCase(**{**BRIDGE, "rate": rate, **parameters}).infix
        store = ResultStore(directory)
        start = len([name for name in store.trials() if name.infix == infix]) if directory.is_dir() else 0
        for repetition in range(start, start + repetitions):
            sent = round(rate * 1000 * _SECONDS * achieved * chance.gauss(1, 0.0002)) if achieved < 1 else rate * 1000 * _SECONDS
            lost = round(sent * loss * chance.gauss(1, noise))
            # No two runs print the same, whatever they measure.
            output = sample.output(sent, sent - lost) + f"\x1b[1;37m[INFO]  run {next(_runs)}\x1b[0m\n"
            histogram = sample.histogram(1000, round(latency_ns * chance.gauss(1, noise)))
            found = figures(parse_moongen_output(output), parse_histogram(histogram.encode(), "x"), float(_SECONDS))
            judged = verdict(found, rate)
            record = {"verdict": judged.verdict, "reason": judged.reason, "figures": found.to_dict()}
            store.commit(TrialName(infix, repetition), {"output": output, "histogram": histogram}, record)
    return directory
