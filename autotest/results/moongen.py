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

COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# No counter is longer; Python refuses to read thousands of digits at all.
_COUNT = r"[0-9]{1,19}"
_FLOAT = r"[-+]?(?:[0-9]{1,30}(?:\.[0-9]{1,30})?|nan|inf)"
_MARK = "[Device: id="
_NAME = r"\[Device: id=((?:0|[1-9][0-9]{0,18})\] [RT]X): "  # a device and a direction
_MBIT = rf"{_FLOAT} Mbit/s \({_FLOAT} Mbit/s with framing\)"
_RATE = re.compile(rf"{_NAME}{_FLOAT} Mpps, {_MBIT}")
_TOTAL = re.compile(
    rf"{_NAME}{_FLOAT} \(StdDev {_FLOAT}\) Mpps, {_FLOAT} \(StdDev {_FLOAT}\) Mbit/s \({_FLOAT} Mbit/s with framing\), "
    rf"total ({_COUNT}) packets with ({_COUNT}) bytes \(incl\. CRC\)"
)
_LONGEST_RATES = 600  # characters of a line of totals before them, and more
_SAMPLES = re.compile(
    rf"Samples: ({_COUNT}), Average: ({_FLOAT}) ns, StdDev: ({_FLOAT}) ns, "
    rf"Quartiles: ({_FLOAT})/({_FLOAT})/({_FLOAT}) ns"
)
# Of each guest, where there are several. Where the last words are there, no number is cut off.
_GUEST_MARK = "Guest "
_GUEST = re.compile(
    rf"\[INFO\] {{1,4}}Guest ([1-9][0-9]{{0,8}}) \(((?:[0-9A-Fa-f]{{2}}:){{5}}[0-9A-Fa-f]{{2}})\): "
    rf"sent ({_COUNT}) frames with ({_COUNT}) bytes, received ({_COUNT}) frames with ({_COUNT}) bytes \(incl\. CRC\), "
    rf"({_COUNT}) latency samples"
)
_SENT = "Test frames: sent "  # what l2-load-latency.lua says of its own sending, where software paces it
_SENT_IN = re.compile(rf"{_SENT}{_COUNT} in ([0-9]{{1,9}}\.[0-9]{{1,9}}) s,")
# Of a whole line; that it begins one is looked at afterwards: a search for what begins with ^ tries every character.
_LEVEL = re.compile(r"\[(INFO|WARN|ERROR|FATAL)\](?!\r*$)[^\S\n]+(.*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Counter:
    """One device and direction.

    Attributes:
        packets, bytes: the final totals, bytes with CRC; None when missing.
    """

    device: int
    direction: Direction
    packets: int | None = None
    bytes: int | None = None
    _text: str = field(default="", repr=False, compare=False)

    def rates(self) -> Iterator[tuple[float, float]]:
        """Mpps and Mbit/s as they are printed each second, the latter with CRC; read as far as they are asked for."""
        name = rf"\[Device: id={self.device}\] {self.direction}: "
        for match in re.finditer(rf"{name}({_FLOAT}) Mpps, ({_FLOAT}) Mbit/s \({_FLOAT} Mbit/s with framing\)", self._text):
            yield float(match[1]), float(match[2])

    @property
    def lines(self) -> int:
        """How many lines of rates there are, whole or not."""
        return self._text.count(f"{_MARK}{self.device}] {self.direction}: ") - (self.packets is not None)


@dataclass(frozen=True, slots=True)
class Samples:
    """The line about latency samples, in ns; the values are nan where there was no sample."""

    count: int
    average_ns: float
    std_ns: float
    quartiles_ns: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class GuestTotals:
    """The line about one of several guests.

    Attributes:
        number: its place among the addresses that the load was sent to, from 1.
        mac: that address, in small letters.
        sent, received: frames; the bytes are with CRC.
        samples: latency samples.
    """

    number: int
    mac: str
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    samples: int


@dataclass(frozen=True, slots=True)
class MoonGenOutput:
    """What one run printed.

    Attributes:
        counters: one per device and direction; those with totals first, in their order.
        device: the one that the load went through: that which sent most, by totals. The receive side counts on the same
            device: frames that another one hears are not the load coming back. Only where nothing was sent at all does the
            receive side decide. None without totals.
        samples: the last samples line, None when there is none.
        warnings: texts of the ``[WARN]`` lines.
        errors: texts of the ``[ERROR]`` and ``[FATAL]`` lines: a task that dies leaves exit code 0.
        notes: texts of the ``[INFO]`` lines: how the program and the runtime say what they do.
        complete: True when totals in both directions are there, and for every counter that was printed.
        shows_silence: True when in some second nothing was received, by what some device shows.
        seconds: for how long frames were sent, where the program says so; None with rate control in hardware.
        guests: where the load went to several, what came of each; ascending.
    """

    counters: tuple[Counter, ...] = ()
    device: int | None = None
    samples: Samples | None = None
    warnings: tuple[str, ...] = ()
    errors: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    complete: bool = False
    shows_silence: bool = False
    seconds: float | None = None
    guests: tuple[GuestTotals, ...] = ()

    def device_counter(self, direction: Direction) -> Counter | None:
        """The counter of the device with the traffic, None where it printed nothing."""
        for counter in self.counters:
            if counter.device == self.device and counter.direction == direction:
                return counter
        return None

    @property
    def sent(self) -> int | None:
        """Frames that the device with the traffic sent."""
        return self._packets("TX")

    @property
    def received(self) -> int | None:
        """Frames that the device with the traffic received."""
        return self._packets("RX")

    @property
    def sent_bytes(self) -> int | None:
        """Bytes of the frames that it sent, with CRC."""
        counter = self.device_counter("TX")
        return counter.bytes if counter else None

    @property
    def received_bytes(self) -> int | None:
        """Bytes of the frames that it received, with CRC."""
        counter = self.device_counter("RX")
        return counter.bytes if counter else None

    def _packets(self, direction: Direction) -> int | None:
        counter = self.device_counter(direction)
        return counter.packets if counter else None


def parse_moongen_output(output: str | bytes) -> MoonGenOutput:
    """Understand what MoonGen printed; never raises: what is cut off or unknown is left out, see ``complete``.

    A line counts only as a whole, so a number that was cut off cannot pass for a smaller one. Each kind of line is found
    by one search through the whole text: of 20,000 files, a Python loop over their lines would be most of the time.
    """
    text = COLOUR.sub("", output if isinstance(output, str) else output.decode("utf-8", "replace"))
    counters = _counters(text)
    levels: dict[str, list[str]] = {"INFO": [], "WARN": [], "ERROR": [], "FATAL": []}
    for match in _LEVEL.finditer(text):
        level, said = match.groups()
        begins_line = not match.start() or text[match.start() - 1] == "\n"
        if begins_line and _MARK not in said and not ("Samples: " in said and _SAMPLES.search(said)):
            levels[level].append(said.strip())
    return MoonGenOutput(
        counters=counters,
        device=_busiest(counters),
        samples=_samples(text),
        warnings=tuple(levels["WARN"]),
        errors=tuple(levels["ERROR"] + levels["FATAL"]),
        notes=tuple(levels["INFO"]),
        complete={counter.direction for counter in counters} == {"RX", "TX"}
        and all(counter.packets is not None for counter in counters),
        shows_silence="RX: 0.00 Mpps, 0 Mbit/s (" in text,
        seconds=_seconds(text),
        guests=_guests(text),
    )


def _counters(text: str) -> tuple[Counter, ...]:
    totals: dict[str, tuple[int | None, int | None]] = {}
    at = text.find(", total ")
    while at >= 0:
        start = text.rfind(_MARK, max(0, at - _LONGEST_RATES), at)
        if start >= 0 and (match := _TOTAL.match(text, start)):
            totals[match[1]] = int(match[2]), int(match[3])
        at = text.find(", total ", at + 1)
    if sum(text.count(_MARK + name) for name in totals) < text.count(_MARK):  # or else no other one printed anything
        for name in _RATE.findall(text):
            totals.setdefault(name, (None, None))
    return tuple(
        Counter(int(name[:-4]), "RX" if name.endswith("RX") else "TX", packets, size, text)
        for name, (packets, size) in totals.items()
    )


def _busiest(counters: tuple[Counter, ...]) -> int | None:
    ranks = [
        (counter.direction == "TX" and counter.packets > 0, counter.packets, -counter.device)
        for counter in counters
        if counter.packets is not None
    ]
    return -max(ranks)[2] if ranks else None


def _seconds(text: str) -> float | None:
    at = text.find(_SENT)
    match = _SENT_IN.search(text, at) if at >= 0 else None
    return float(match[1]) if match else None


def _guests(text: str) -> tuple[GuestTotals, ...]:
    """One for each number, the last line that tells of it."""
    if _GUEST_MARK not in text:  # of 20,000 files, most have none
        return ()
    found = {}
    for match in _GUEST.finditer(text):
        if not match.start() or text[match.start() - 1] == "\n":
            number, mac, *counts = match.groups()
            found[int(number)] = GuestTotals(int(number), mac.lower(), *map(int, counts))
    return tuple(found[number] for number in sorted(found))


def _samples(text: str) -> Samples | None:
    """The last line about samples; not one that the line of a device runs into."""
    end = len(text)
    while (at := text.rfind("Samples: ", 0, end)) >= 0:
        start = text.rfind("\n", 0, at) + 1
        stop = text.find("\n", at)
        line = text[start : stop if stop >= 0 else len(text)]
        if _MARK not in line and (match := _SAMPLES.search(line)):
            count, *values = match.groups()
            average, std, *quartiles = map(float, values)
            return Samples(int(count), average, std, (quartiles[0], quartiles[1], quartiles[2]))
        end = start
    return None
