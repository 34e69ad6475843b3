"""Planning and pruning 1,000,000 trials, against a plain nested loop that builds the same names and asks for the files.

Run from the repository: ``python -m benchmarks plan``.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from itertools import product
from pathlib import Path

from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Section
from autotest.run.campaign import Campaign, count
from benchmarks.scale import full_or_tiny

RATES, SIZES, REPETITIONS = range(1, full_or_tiny(2501, 6)), range(60, 70), 1
QEMUS = tuple((f"build{number}", "") for number in range(5))
TRIALS = 2 * 2 * len(QEMUS) * 2 * len(RATES) * len(SIZES) * REPETITIONS
GOAL_S, GOAL_MIB = 3.0, 150.0


def measure() -> list[dict]:
    """Figures as dicts of name, value, unit, goal and ratio (the peer's time over ours)."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "foreign file").touch()  # an empty directory would be too easy
        campaign = Campaign(KIND, [_section(Path(folder))])
        start = time.perf_counter()
        total, done = count(campaign.trials())
        seconds = time.perf_counter() - start
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        assert (total, done) == (TRIALS, 0)
        start = time.perf_counter()
        assert _plain_loop(folder) == TRIALS
        peer = time.perf_counter() - start
    name = f"plan and prune {TRIALS:,} trials"
    return [
        {"name": name, "value": seconds, "unit": "s", "goal": GOAL_S, "ratio": peer / seconds},
        {"name": f"{name}: peak memory", "value": peak, "unit": "MiB", "goal": GOAL_MIB, "ratio": None},
    ]


def _section(outputdir: Path) -> Section:
    lists = {
        "machine": ("pcvm", "microvm"),
        "interface": ("bridge", "macvtap"),
        "qemu": QEMUS,
        "vhost": (False, True),
        "ioregionfd": (False,),
        "queues": (None,),
        "rx_queue_size": (None,),
        "tx_queue_size": (None,),
        "guests": (1,),
        "reflector": ("xdp",),
        "weights": ("even",),
        "rate": tuple(RATES),
        "size": tuple(SIZES),
        "runtime": (10,),
    }
    settings = {"repetitions": REPETITIONS, "outputdir": outputdir}
    return Section("benchmark", lists, settings)


def _plain_loop(folder: str) -> int:
    """What the older tool did: one loop in another, two questions to the file system a trial."""
    missing = 0
    set_ups = product(("pcvm", "microvm"), ("bridge", "macvtap"), QEMUS, ("off", "on"))
    for (machine, interface, qemu, vhost), rate, size in product(set_ups, RATES, SIZES):
        infix = f"{machine}_{interface}_{qemu[0]}_vhost{vhost}_ioregionfdoff_xdp_{rate}kpps_{size}B_10s"
        for repetition in range(REPETITIONS):
            output = os.path.join(folder, f"output_{infix}_rep{repetition}.log")
            histogram = os.path.join(folder, f"histogram_{infix}_rep{repetition}.csv")
            missing += not (os.path.isfile(output) and os.path.isfile(histogram))
    return missing
