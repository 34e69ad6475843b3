"""What MoonGen printed, understood: totals and rates per device and direction, samples, warnings, notes.

Format: MoonGen at commit 7746ff2 (libmoon ``lua/stats.lua``, ``lua/histogram.lua``), colour codes included. The rates
it prints have two decimals of Mpps, 10 kpps being 0.01: figures are therefore made from the totals only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Direction = Literal["RX", "TX"]

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# No counter is longer; Python refuses to read thousands of digits at all.
_COUNT = r"[0-9]{1,19}"
_FLOAT = r"[-+]?(?:[0-9]{1,30}(?:\.[0-9]{1,30})?|nan|inf)"
_TOTAL = re.compile(
    rf"\[Device: id=(?P<device>{_COUNT})\] (?P<direction>RX|TX): {_FLOAT} \(StdDev {_FLOAT}\) Mpps, "
    rf"{_FLOAT} \(StdDev {_FLOAT}\) Mbit/s \({_FLOAT} Mbit/s with framing\), "
    rf"total (?P<packets>{_COUNT}) packets with (?P<bytes>{_COUNT}) bytes \(incl\. CRC\)"
)
_RATE = re.compile(
    rf"\[Device: id=(?P<device>{_COUNT})\] (?P<direction>RX|TX): (?P<mpps>{_FLOAT}) Mpps, "
    rf"{_FLOAT} Mbit/s \({_FLOAT} Mbit/s with framing\)"
)
_SAMPLES = re.compile(
    rf"Samples: (?P<count>{_COUNT}), Average: (?P<average>{_FLOAT}) ns, StdDev: (?P<std>{_FLOAT}) ns, "
    rf"Quartiles: (?P<q1>{_FLOAT})/(?P<q2>{_FLOAT})/(?P<q3>{_FLOAT}) ns"
)
_LEVEL = re.compile(r"\[(?P<level>INFO|WARN|ERROR|FATAL)\]\s+(?P<text>.*)")


@dataclass(frozen=True, slots=True)
class Counter:
    """One device and direction: rates in Mpps as printed each second, and the final totals (None when missing)."""

    device: int
    direction: Direction
    rates_mpps: tuple[float, ...] = ()
    packets: int | None = None
    #: With CRC.
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """The line about latency samples, in ns; the values are nan where there was no sample."""

    count: int
    average_ns: float
    std_ns: float
    quartiles_ns: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class MoonGenOutput:
    """What one run printed.

    Attributes:
        counters: one per device and direction, in the order of their first appearance.
        samples: the last samples line, None when there is none.
        warnings: texts of the ``[WARN]`` lines.
        errors: texts of the ``[ERROR]`` and ``[FATAL]`` lines: a task that dies leaves exit code 0.
        notes: texts of the ``[INFO]`` lines: how the program and the runtime say what they do.
        complete: True when totals in both directions are there, and for every counter that was printed.
    """

    counters: tuple[Counter, ...] = ()
    samples: Samples | None = None
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False

    def total(self, device: int, direction: Direction) -> Counter | None:
        """The counter of a device and direction if its final totals are there."""
        for counter in self.counters:
            if (counter.device, counter.direction) == (device, direction) and counter.packets is not None:
                return counter
        return None

    @property
    def device(self) -> int | None:
        """The device that the load went through: the one that sent most, by totals.

        The receive side counts on the same device: frames that another one hears are not the load coming back.
        Only where nothing was sent at all does the receive side decide. None without totals.
        """
        totals = [counter for counter in self.counters if counter.packets is not None]
        if not totals:
            return None
        busiest = max(totals, key=lambda c: (c.direction == "TX" and bool(c.packets), c.packets or 0, -c.device))
        return busiest.device

    @property
    def sent(self) -> int | None:
        """Frames that the device with the traffic sent."""
        return self._packets("TX")

    @property
    def received(self) -> int | None:
        """Frames that the device with the traffic received."""
        return self._packets("RX")

    def _packets(self, direction: Direction) -> int | None:
        if (device := self.device) is None:
            return None
        counter = self.total(device, direction)
        return counter.packets if counter else None


@dataclass
class _Collected:
    rates: dict[tuple[int, Direction], list[float]] = field(default_factory=dict)
    totals: dict[tuple[int, Direction], tuple[int, int]] = field(default_factory=dict)
    samples: Samples | None = None
    lines: dict[str, list[str]] = field(default_factory=lambda: {"INFO": [], "WARN": [], "ERROR": [], "FATAL": []})


def parse_moongen_output(text: str) -> MoonGenOutput:
    """Understand what MoonGen printed; never raises: what is cut off or unknown is left out, see ``complete``.

    A line counts only as a whole, so a number that was cut off cannot pass for a smaller one.
    """
    found = _Collected()
    for line in _lines(text):
        _collect(line, found)
    counters = tuple(
        Counter(*key, tuple(rates), *found.totals.get(key, (None, None))) for key, rates in found.rates.items()
    )
    directions = {direction for _, direction in found.totals}
    return MoonGenOutput(
        counters=counters,
        samples=found.samples,
        warnings=tuple(found.lines["WARN"]),
        errors=tuple(found.lines["ERROR"] + found.lines["FATAL"]),
        notes=tuple(found.lines["INFO"]),
        complete=directions == {"RX", "TX"} and found.totals.keys() == found.rates.keys(),
    )


def _lines(text: str) -> Iterator[str]:
    for line in _COLOUR.sub("", text).split("\n"):
        yield line.rstrip("\r")


def _collect(line: str, found: _Collected) -> None:
    if "[Device: id=" in line:
        for match in _RATE.finditer(line):
            found.rates.setdefault(_key(match), []).append(float(match["mpps"]))
        for match in _TOTAL.finditer(line):
            found.rates.setdefault(_key(match), [])
            found.totals[_key(match)] = (int(match["packets"]), int(match["bytes"]))
    elif match := _SAMPLES.search(line):
        found.samples = Samples(
            int(match["count"]),
            float(match["average"]),
            float(match["std"]),
            (float(match["q1"]), float(match["q2"]), float(match["q3"])),
        )
    elif match := _LEVEL.match(line):
        found.lines[match["level"]].append(match["text"].strip())


def _key(match: re.Match[str]) -> tuple[int, Direction]:
    direction: Direction = "RX" if match["direction"] == "RX" else "TX"
    return int(match["device"]), direction
