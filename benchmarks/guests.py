"""Several guests at once: how long until all are there, and what each costs in memory and on disk. Needs root.

Run from the repository: ``python -m benchmarks guests``.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from autotest.config.testbed import Testbed, load_testbed
from autotest.interfaces import INTERFACE_KINDS
from autotest.resources import PROJECT_DIRECTORY
from autotest.servers.guest import GuestSettings
from autotest.servers.guests import Guests
from autotest.servers.host import Host
from autotest.servers.testbed import Servers
from benchmarks.scale import full_or_tiny

sys.path.insert(0, str(PROJECT_DIRECTORY / "tests" / "support"))
from labtest import lab_command, own_lab

ROUNDS = full_or_tiny(3, 1)
GOALS_S = full_or_tiny(
    {1: 3.5, 2: 3.5, 4: 7.0, 8: 15.0}, {1: 3.5, 2: 3.5}
)  # by hand, from the start of the first until all took logins, on two CPUs with TCG
GOAL_MEMORY_MB = 220.0  # each of eight, by hand
MOST = max(GOALS_S)


@dataclass(frozen=True)
class Cost:
    """What one guest costs, in MB: memory that is its own or its share of what is shared, all that it maps, and disk space."""

    own: float
    mapped: float
    overlay: float


def measure() -> list[dict]:
    """Figures as dicts of name, value, unit, goal and ratio (None: there is no peer for them)."""
    with _lab() as testbed, Servers(testbed) as servers:
        host, kind = servers.host, INTERFACE_KINDS["bridge"]
        settings = GuestSettings("microvm", kind, "")
        together: dict[int, list[float]] = {count: [] for count in GOALS_S}
        in_turn: dict[int, list[float]] = {count: [] for count in GOALS_S}
        costs: list[Cost] = []
        with host.admin_network(), host.test_network(kind, guest=True):
            with host.guests.running(settings, 1):
                pass  # the first start proves KVM and fills the page cache
            for _ in range(ROUNDS):
                for count in GOALS_S:
                    together[count].append(_seconds_together(host, settings, count, costs))
                for count, seconds in _seconds_in_turn(host.guests, settings).items():
                    in_turn[count].append(seconds)
        image = Path(testbed.host.root_disk_file or "").stat().st_blocks * 512 / 1e6
    return [*_times(together, in_turn), *_costs(costs, image)]


@contextmanager
def _lab() -> Iterator[Testbed]:
    with tempfile.TemporaryDirectory() as folder:
        config = own_lab(PROJECT_DIRECTORY / "autotest.conf", Path(folder, "autotest.conf"))
        with contextmanager(lab_command)(config) as lab:
            lab.run("lab", "up")
            yield load_testbed(config, PROJECT_DIRECTORY)


def _seconds_together(host: Host, settings: GuestSettings, count: int, costs: list[Cost]) -> float:
    """Until so many guests are there; with most of them it is noted what they cost."""
    start = time.monotonic()
    with host.guests.running(settings, count):
        seconds = time.monotonic() - start
        if count == MOST:
            costs += map(_cost, map(int, filter(None, (machine.session.pid() for machine in host.guests.present))))
    return seconds


def _seconds_in_turn(guests: Guests, settings: GuestSettings) -> dict[int, float]:
    """Until so many guests are there that boot one after the other."""
    start, found = time.monotonic(), {}
    with guests.running(settings, 1):
        for count in range(2, MOST + 1):
            assert guests.change(count)
            found[count] = time.monotonic() - start
    return {count: seconds for count, seconds in found.items() if count in GOALS_S}


def _cost(pid: int) -> Cost:
    rollup = dict(re.findall(r"^(Pss|Rss): +(\d+) kB$", Path(f"/proc/{pid}/smaps_rollup").read_text(), re.MULTILINE))
    files = [os.stat(path) for path in Path(f"/proc/{pid}/fd").iterdir() if _is_overlay(os.readlink(path))]
    assert files, "QEMU has no overlay"
    return Cost(int(rollup["Pss"]) / 1e3, int(rollup["Rss"]) / 1e3, sum(file.st_blocks * 512 for file in files) / 1e6)


def _is_overlay(target: str) -> bool:
    """Whether it is the file that QEMU makes for ``snapshot=on`` and unlinks: block.c, bdrv_append_temp_snapshot."""
    return re.search(r"/vl\.\w{6} \(deleted\)$", target) is not None


def _times(together: dict[int, list[float]], in_turn: dict[int, list[float]]) -> list[dict]:
    rows = []
    for count, goal in GOALS_S.items():
        seconds = statistics.median(together[count])
        peer = statistics.median(in_turn[count]) / seconds if in_turn[count] else None
        name = f"{count} guests: until all are there, vs. one after the other" if peer else "1 guest: until it is there"
        rows.append({"name": f"{name}, median of {ROUNDS}", "value": seconds, "unit": "s", "goal": goal, "ratio": peer})
    return rows


def _costs(costs: list[Cost], image: float) -> list[dict]:
    own, mapped, overlay = (statistics.median(getattr(cost, key) for cost in costs) for key in ("own", "mapped", "overlay"))
    return [
        {"name": f"memory of each of {MOST} guests (PSS)", "value": own, "unit": "MB", "goal": GOAL_MEMORY_MB, "ratio": None},
        {"name": "the same with all that is shared (RSS)", "value": mapped, "unit": "MB", "goal": None, "ratio": None},
        {
            "name": "disk space of a guest's overlay, vs. a copy of the image",
            "value": overlay,
            "unit": "MB",
            "goal": None,
            "ratio": image / max(overlay, 1e-3),
        },
    ]
