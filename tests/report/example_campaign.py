"""A whole campaign of synthetic trials, plausible enough to look at: what reports are drawn, viewed and timed with.

Two machines, bridge and macvtap, vhost on and off, two reflectors, two frame sizes, eight rates, three repetitions;
microvm has no PCI bus and so no MoonGen reflector: 24 set-ups, 192 test cases, 576 trials. In it are

- a knee per set-up: loss and a full queue beyond it with a bridge; with macvtap the sender is held back, so trials
  beyond the knee are under-sent and nothing is lost;
- one test case with one disturbed repetition, and one of which every repetition is disturbed.

Nothing in it was measured. The same arguments give the same files, byte by byte. As a program:
``PYTHONPATH=.:tests/results python tests/report/example_campaign.py DIRECTORY``.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import sample_output as sample

from autotest.results.figures import figures, verdict
from autotest.results.histogram import parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore

RATES = (10, 20, 50, 100, 200, 400, 700, 1000)
RUNTIME_S = 30
#: One repetition of the first and all of the second are disturbed.
DISTURBED = {
    "pcvm_bridge_normal_vhoston_ioregionfdoff_xdp_50kpps_60B_30s": (1,),
    "pcvm_bridge_normal_vhostoff_ioregionfdoff_xdp_200kpps_1514B_30s": (0, 1, 2),
}


@dataclass(frozen=True)
class _Path:
    """What a set-up is made of, for the model: a server with a queue in front.

    Attributes:
        capacity_kpps: frames that it can reflect.
        base_us: latency without load.
        held_back: the sender waits for it; nothing is lost.
    """

    capacity_kpps: float
    base_us: float
    held_back: bool


def fill_campaign(
    directory: Path,
    *,
    machines: Sequence[str] = ("pcvm", "microvm"),
    interfaces: Sequence[str] = ("bridge", "macvtap"),
    vhosts: Sequence[bool] = (False, True),
    reflectors: Sequence[str] = ("xdp", "moongen"),
    sizes: Sequence[int] = (60, 1514),
    rates: Sequence[int] = RATES,
    repetitions: int = 3,
    samples: int = 2000,
    testbed: str = "synthetic",
) -> int:
    """Write the trials of that matrix, in its order, into a directory; returns how many.

    Args:
        samples: latency samples of a trial.
        testbed: name of the testbed in the records.
    """
    store = ResultStore(directory)
    started = datetime(2026, 1, 1, tzinfo=UTC)
    written = 0
    with mock.patch("os.fsync"):  # no power failure is to be survived here, and it is ten times faster
        for case in _matrix(machines, interfaces, vhosts, reflectors, sizes, rates):
            for repetition in range(repetitions):
                name = TrialName(case.infix, repetition)
                files, record = _trial(case, name, samples)
                times = {"started": started.isoformat(), "ended": (started + timedelta(seconds=RUNTIME_S)).isoformat()}
                store.commit(name, files, {**record, **times, **_circumstances(case, testbed)})
                started += timedelta(seconds=RUNTIME_S + 5)
                written += 1
    return written


def _matrix(
    machines: Sequence[str],
    interfaces: Sequence[str],
    vhosts: Sequence[bool],
    reflectors: Sequence[str],
    sizes: Sequence[int],
    rates: Sequence[int],
) -> Iterator[LoadLatencyCase]:
    for machine, interface, vhost, reflector, rate, size in itertools.product(
        machines, interfaces, vhosts, reflectors, rates, sizes
    ):
        if (machine, reflector) != ("microvm", "moongen"):
            yield LoadLatencyCase(machine, interface, reflector, rate, size, RUNTIME_S, "normal", vhost, False)


def _path(case: LoadLatencyCase) -> _Path:
    capacity, base = (620.0, 22.0) if case.vhost else (260.0, 48.0)
    if case.machine == "microvm":
        capacity, base = capacity * 0.85, base * 0.9
    if case.interface == "macvtap":
        capacity, base = capacity * 1.15, base * 0.8
    if case.reflector == "moongen":
        capacity, base = capacity * 1.4, base * 1.25
    if case.size > 1000:
        capacity, base = capacity * 0.6, base + 7
    return _Path(capacity, base, case.interface == "macvtap")


def _trial(case: LoadLatencyCase, name: TrialName, samples: int) -> tuple[dict[str, str], dict[str, Any]]:
    seed = int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8], "big")
    random = np.random.default_rng(seed)
    path = _path(case)
    capacity = path.capacity_kpps * random.normal(1, 0.01)
    achieved = min(case.rate, capacity) if path.held_back else float(case.rate)
    lost = max(0.0, 1 - capacity / achieved)
    sent = round(achieved * 1000 * RUNTIME_S)
    received = sent - round(sent * lost) - int(random.poisson(2e-7 * sent * (achieved > 0.8 * capacity)))
    latencies = _latencies(random, path, achieved / capacity, samples)
    values, counts = np.unique(latencies, return_counts=True)
    histogram = "".join(f"{value},{count}\n" for value, count in zip(values.tolist(), counts.tolist(), strict=True))
    output = sample.output(sent, received, samples=sample.samples_line(histogram))
    disturbed = "the load generator's clock jumped by +1.25 s" if name.repetition in DISTURBED.get(name.infix, ()) else ""
    found = figures(parse_moongen_output(output), parse_histogram(histogram.encode(), name.histogram), float(RUNTIME_S))
    judged = verdict(found, case.rate, disturbed=disturbed)
    record = {"verdict": judged.verdict, "reason": judged.reason, "accepted": None, "figures": found.to_dict()}
    return {"output": output, "histogram": histogram}, {**record, "exit_code": 0}


def _latencies(random: np.random.Generator, path: _Path, load: float, samples: int) -> np.ndarray:
    """Nanoseconds: a service time with a long tail, and the wait in a queue of 512 frames, full where overloaded."""
    base = path.base_us * random.lognormal(0, 0.03) * random.lognormal(0, 0.18, samples)
    base += np.where(random.random(samples) < 0.03, random.exponential(6 * path.base_us, samples), 0)
    service = 1000 / path.capacity_kpps
    full = 512 * service
    if load < 0.995:
        wait = np.minimum(random.exponential(service * load / (1 - load) * 3, samples), full)
    else:
        wait = full * random.normal(0.95, 0.03, samples).clip(0.5, 1)
    return (np.round((base + wait) * 100) * 10).astype(np.int64)  # a clock of 10 ns


def _circumstances(case: LoadLatencyCase, testbed: str) -> dict[str, Any]:
    """What else a record of a trial says; the same for each trial of a set-up."""
    determines = {
        "qemu.version": "8.2.2",
        "image.sha256": "4a" * 32,
        "program.l2-load-latency.lua": "b7" * 32,
        "host.kernel": "6.1.0-18-amd64",
        "guest.kernel": "6.1.0-18-cloud-amd64",
        "guest.memory": 4096,
        "guest.vcpus": 4,
    }
    if case.machine == "microvm":
        determines["qemu.version"] = "8.2.2 (microvm)"
    digest = hashlib.sha256(json.dumps(determines, sort_keys=True).encode()).hexdigest()
    machine = {
        "kernel": "6.1.0-18-amd64",
        "cpu": "Intel(R) Xeon(R) Gold 6312U CPU @ 2.40GHz",
        "cpus": "0-23",
        "smt": False,
        "governor": "performance",
        "turbo": False,
        "numa nodes": "0",
        "memory kib": 131_000_000,
        "hugepages": {"1048576kB": {"total": 8, "free": 4}},
        "mitigations": {"spectre_v2": "Vulnerable", "meltdown": "Not affected"},
        "nic": {"interface": "ens1", "model": "8086:1592", "driver": "ice", "numa node": 0, "speed": 100_000},
    }
    settings = {"warmup": 0, "cooldown": 0, "accumulate": True}
    configuration = {"host": {"test_iface": "ens1"}, "guest": {"vcpus": 4, "memory": 4096}, "loadgen": {"test_iface": "ens2"}}
    return {
        "measurement": "load-latency",
        "parameters": {name: value for name in LoadLatencyCase.__slots__ if (value := getattr(case, name)) is not None},
        "settings": settings,
        "identity": {"hash": digest, "determines": determines},
        "testbed": {"name": testbed, "configuration": configuration},
        "machines": {"host": machine, "guest": {"kernel": "6.1.0-18-cloud-amd64"}, "loadgen": machine},
        "versions": {"autotest": "synthetic", "git revision": None, "python": "3.11.2"},
    }


if __name__ == "__main__":
    print(fill_campaign(Path(sys.argv[1])), "trials")
