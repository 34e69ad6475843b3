"""``autotest test-load-lat-file`` with a measurement kind that measures nothing, on machines of which nothing is wanted.

Run as a program, with autotest's arguments; ``write`` makes the files that it takes. What the trials come to is told by their rate:
13 fails, 14 gives a trial that counts for nothing, 15 finds a bug of our own. Each trial says what it reads ten times.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotest.cli.program import program
from autotest.config.testbed import Testbed
from autotest.errors import TrafficError
from autotest.measurements import load_latency
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.plan.parameters import Case, Section
from autotest.run import opening
from autotest.run.journal import Change, UndoFailed
from autotest.run.observer import Observer
from autotest.run.stages import Stage
from autotest.servers.testbed import Servers

CONFIGURATION = "[host]\nfqdn = localhost\n[guest]\nfqdn = localhost\n[loadgen]\nfqdn = localhost\n"
FAILS, COUNTS_FOR_NOTHING, FINDS_A_BUG = 13, 14, 15  # kpps
READINGS = 10
# In the environment: how many seconds a stage takes, a trial, and the undoing of a stage.
STAGE_SECONDS, TRIAL_SECONDS, UNDO_SECONDS = "FAKE_STAGE_SECONDS", "FAKE_TRIAL_SECONDS", "FAKE_UNDO_SECONDS"
# Also there: the interface that cannot be set up, and whether undoing fails in the end.
BROKEN_INTERFACE, STUCK = "FAKE_BROKEN_INTERFACE", "FAKE_STUCK"
TOTAL = (
    "[Device: id=0] {}: 0.01 (StdDev 0) Mpps, 5 (StdDev 0) Mbit/s (6 Mbit/s with framing), total 5 packets with 320 bytes "
    "(incl. CRC)\n"
)


def write(folder: Path, **lists: object) -> list[str]:
    """A testbed and a campaign; returns the arguments of the command that measures it."""
    values = {
        "machines": "pcvm", "interfaces": "bridge, macvtap", "qemus": "default:/x", "reflectors": "xdp", "rates": "10, 20",
        "sizes": "60", "runtimes": "1", "retries": "0", "outputdir": folder / "out",
    } | lists  # fmt: skip
    (folder / "autotest.conf").write_text(CONFIGURATION)
    (folder / "tests.conf").write_text("[latency]\n" + "".join(f"{key} = {value}\n" for key, value in values.items()))
    return ["-c", str(folder / "autotest.conf"), "test-load-lat-file", str(folder / "tests.conf")]


def _seconds(name: str, usual: float) -> float:
    return float(os.environ.get(name, usual))


@contextmanager
def _stage(servers: Servers, case: Case) -> Iterator[None]:
    time.sleep(_seconds(STAGE_SECONDS, 0.0))
    if case["interface"] == os.environ.get(BROKEN_INTERFACE):
        raise TrafficError("no such link")
    try:
        yield
    finally:
        time.sleep(_seconds(UNDO_SECONDS, 0.0))


def _measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
    observer.phase("load", case["runtime"])
    for reading in range(READINGS):
        time.sleep(_seconds(TRIAL_SECONDS, 0.3) / READINGS)
        observer.reads(f"{case['rate'] + reading / 100:.2f} kpps")
    if case["rate"] == FINDS_A_BUG:
        raise ZeroDivisionError("a bug")
    if case["rate"] == FAILS:
        raise TrafficError("loadgen: hangs\nwith two lines")
    verdict = "no-reflection" if case["rate"] == COUNTS_FOR_NOTHING else "valid"
    (folder / "o").write_text("".join(map(TOTAL.format, ("RX", "TX"))))
    (folder / "h").write_text("1000,5\n")
    record = {"verdict": verdict, "reason": "", "figures": {}}
    problem = None if verdict == "valid" else f"{verdict}: nothing came back"
    return Trial({"output": folder / "o", "histogram": folder / "h"}, record, f"achieved {case['rate']}.00 kpps", problem)


@contextmanager
def _opened(testbed: Testbed, **_: Any) -> Iterator[Servers]:
    with Servers(testbed) as servers:
        yield servers
    if STUCK in os.environ:
        raise UndoFailed([(Change(1, "host", "link", {"name": "br-test"}), TrafficError("it is stuck"))])


def main() -> int:
    of = load_latency.KIND
    stages = (Stage("network", "interface", _stage), Stage("guest", "guests", _stage))
    load_latency.KIND = MeasurementKind(
        "fake", of.parameters, of.settings, of.rules, stages, of.infix, lambda testbed, cases: [], _measure,
        load_latency.trial_seconds,
    )  # fmt: skip
    opening.open_testbed = _opened
    opening.undo_what_is_left = lambda testbed, **_: []
    return program()


if __name__ == "__main__":
    sys.exit(main())
