"""A small output directory with known figures: three set-ups, five kinds of trials."""

from __future__ import annotations

from pathlib import Path

import sample_output as sample

from autotest.results.figures import figures, verdict
from autotest.results.histogram import parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore

BRIDGE = {"machine": "pcvm", "interface": "bridge", "reflector": "xdp", "size": 60, "runtime": 30}
BRIDGE |= {"qemu": "normal", "vhost": True, "ioregionfd": False}
MACVTAP = {**BRIDGE, "interface": "macvtap"}
HOST = {"machine": "host", "interface": "pnic", "reflector": "moongen", "size": 60, "runtime": 30}


def add(directory: Path, setup: dict, rate: int, repetition: int, *, sent_kpps: float | None = None, **trial) -> None:
    sent = round((sent_kpps or rate) * 30_000)
    output = sample.output(sent, round(sent * (1 - trial.get("loss", 0))))
    histogram = sample.histogram(1000, trial.get("latency_ns", 100_000))
    found = figures(parse_moongen_output(output), parse_histogram(histogram.encode(), "x"), 30.0)
    judged = verdict(found, rate, disturbed=trial.get("disturbed", ""))
    name = TrialName(LoadLatencyCase(rate=rate, **setup).infix, repetition)
    record = {"verdict": judged.verdict, "reason": judged.reason, "figures": found.to_dict()}
    ResultStore(directory).commit(name, {"output": output, "histogram": histogram}, record)


def fill(directory: Path) -> None:
    add(directory, BRIDGE, 10, 0)
    add(directory, BRIDGE, 10, 1, latency_ns=104_000)
    add(directory, BRIDGE, 40, 0, loss=0.1, latency_ns=1_500_000)
    add(directory, BRIDGE, 40, 1, loss=0.2, latency_ns=1_600_000)
    add(directory, MACVTAP, 10, 0, loss=0.000_01)
    add(directory, MACVTAP, 40, 0, sent_kpps=30)
    add(directory, HOST, 10, 0, latency_ns=9_000)
    add(directory, HOST, 10, 1, disturbed="link went down")
    add(directory, HOST, 40, 0, disturbed="link went down")
    old = TrialName(LoadLatencyCase(rate=5, **HOST).infix, 0)
    (directory / old.output).write_text(sample.output(150_000, 150_000))
    (directory / old.histogram).write_text(sample.histogram(300, 8_000))
    (directory / "output_something-else_rep0.log").write_text("")
