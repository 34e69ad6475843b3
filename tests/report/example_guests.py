"""Synthetic trials of 1, 2, 4 ... guests that compete for one host: what reports of several guests are drawn and tested with.

Each guest has a queue of its own before a processor that all share. The later ones get a little less of it, so from a total load
on they lose more and wait longer than the first ones; with ``macvtap`` the sender is held back instead. Nothing in it was
measured. The same arguments give the same files, byte by byte. As a program:
``PYTHONPATH=.:tests/results:tests/report python tests/report/example_guests.py DIRECTORY``.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import sample_output as sample

from autotest.config.guests import name_of
from autotest.results.figures import figures, verdict
from autotest.results.guest_latencies import format_guest_latencies
from autotest.results.guests import missing_in_words
from autotest.results.histogram import Histogram, format_histogram, sum_histograms
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import LoadLatencyCase, TrialName
from autotest.results.store import ResultStore

RUNTIME_S = 30
CAPACITY_KPPS = 400
SET_UP = {"machine": "pcvm", "reflector": "xdp", "runtime": RUNTIME_S, "qemu": "normal", "vhost": True, "ioregionfd": False}
MEAN_SIZES = {"imix": (60 * 7 + 590 * 4 + 1514) / 12}


@dataclass(frozen=True)
class Guest:
    """What came of one guest in one trial."""

    sent: int
    received: int
    size: float
    latencies: Histogram

    def line(self, place: int, number: int) -> str:
        sent, received = (round(frames * (self.size + 4)) for frames in (self.sent, self.received))
        return (
            f"\x1b[1;37m[INFO]  Guest {place} ({sample.mac(number)}): sent {self.sent} frames with {sent} bytes, "
            f"received {self.received} frames with {received} bytes (incl. CRC), "
            f"{self.latencies.samples} latency samples\x1b[0m\n"
        )


def fill_guests(
    directory: Path,
    *,
    guests: Sequence[int] = (1, 2, 4),
    interfaces: Sequence[str] = ("bridge", "macvtap"),
    rates: Sequence[int] = (50, 300, 500),
    sizes: Sequence[int | str] = (60,),
    weights: Mapping[int, str] | None = None,
    repetitions: int = 3,
    samples: int = 400,
) -> None:
    """Write the trials of that matrix into a directory.

    Args:
        weights: by number of guests, where they are not even.
        samples: latency samples of each guest in a trial.
    """
    with mock.patch("os.fsync"):
        for interface in interfaces:
            for number in guests:
                for rate in rates:
                    for size in sizes:
                        case = {"interface": interface, "guests": number, "rate": rate, "size": size}
                        case["weights"] = (weights or {}).get(number)
                        for repetition in range(repetitions):
                            add(directory, case, repetition, samples=samples)


def add(
    directory: Path, case: Mapping[str, Any], repetition: int, *, samples: int = 400, missing: Mapping[int, str] | None = None
) -> TrialName:
    """One trial; ``missing`` has reasons by the number of a guest that was not there."""
    several = None if case["guests"] == 1 else case["guests"]
    name = TrialName(LoadLatencyCase(**{**SET_UP, **case, "guests": several}).infix, repetition)
    shares = [int(share) for share in (case.get("weights") or ":".join("1" * case["guests"])).split(":")]
    there = [number for number in range(1, case["guests"] + 1) if number not in (missing or {})]
    weights = [shares[number - 1] for number in there]
    seed = int.from_bytes(hashlib.sha256(str(name).encode()).digest()[:8], "big")
    random = np.random.default_rng(seed)
    sent_kpps = min(case["rate"], 1.1 * CAPACITY_KPPS) if case["interface"] == "macvtap" else case["rate"]
    size = case["size"] if isinstance(case["size"], int) else MEAN_SIZES[case["size"]]
    found = [
        _guest(random, sent_kpps * weight / sum(weights), number, len(there), size, samples)
        for number, weight in zip(there, weights, strict=True)
    ]
    latencies = dict(zip(there, (guest.latencies for guest in found), strict=True))
    together = sum_histograms(latencies.values())
    files: dict[str, str | bytes] = {"output": _output(found, there), "histogram": format_histogram(together)}
    if case["guests"] > 1:
        files["guests"] = format_guest_latencies(latencies)
    reasons = {name_of(number): reason for number, reason in (missing or {}).items()}
    measured = figures(
        parse_moongen_output(files["output"]), together, float(RUNTIME_S),
        guests=there, weights=weights, guest_latencies=latencies if len(there) > 1 else None,
    )  # fmt: skip
    judged = verdict(measured, case["rate"], missing=missing_in_words(reasons, len(there)))
    record = {"verdict": judged.verdict, "reason": judged.reason, "accepted": None, "figures": measured.to_dict()}
    ResultStore(directory).commit(name, files, {**record, **({"missing_guests": reasons} if reasons else {})})
    return name


def _guest(random: np.random.Generator, kpps: float, number: int, guests: int, size: float, samples: int) -> Guest:
    """One of so many; the later ones have up to a fifth less of the processor."""
    capacity = CAPACITY_KPPS / guests * (1 - 0.2 * (number - 1) / max(guests - 1, 1)) * random.normal(1, 0.01)
    load = kpps / capacity
    sent = round(kpps * 1000 * RUNTIME_S)
    received = round(sent * min(1, 1 / load)) if load > 1 else sent
    base = 40 * (1 + 0.15 * (number - 1)) * random.lognormal(0, 0.18, samples)
    wait = random.exponential(5 * load / max(1.01 - load, 0.05), samples)
    if load > 1:
        wait = 256e3 / capacity * random.normal(0.95, 0.03, samples)
    values, counts = np.unique((np.round((base + wait) * 100) * 10).astype(np.int64), return_counts=True)
    return Guest(sent, received, size, Histogram.of(dict(zip(values.tolist(), counts.tolist(), strict=True))))


def _output(found: Sequence[Guest], numbers: Sequence[int]) -> str:
    sent, received = (sum(getattr(guest, name) for guest in found) for name in ("sent", "received"))
    together = sum_histograms(guest.latencies for guest in found)
    text = sample.output(sent, received, samples=sample.samples_line(format_histogram(together).decode()))
    text = text.replace(f"with {sent * 64} bytes", f"with {round(sent * (found[0].size + 4))} bytes")
    text = text.replace(f"with {received * 64} bytes", f"with {round(received * (found[0].size + 4))} bytes")
    lines = [guest.line(place, number) for place, (guest, number) in enumerate(zip(found, numbers, strict=True), 1)]
    return text + "".join(lines if len(lines) > 1 else [])


if __name__ == "__main__":
    fill_guests(Path(sys.argv[1]), sizes=(60, "imix"))
