"""What the lines that MoonGen prints each second tell of the course of a run; all figures are made from totals instead.

They have two decimals of Mpps and whole Mbit/s, CRC included. ``0 Mbit/s`` stands for less than 0.5 Mbit/s, which is
977 frames of 60 bytes (64 with CRC) a second and fewer larger ones: Mbit/s is the finer of the two for all sizes. ``5 Mbit/s``
stands for at least 4.5, 8.8 kpps of the smallest frames. So a second with 0 received and 5 or more sent has lost at
least eight ninths of its frames; with less sent, nothing can be told.
"""

from __future__ import annotations

import itertools
import re
from collections import deque
from collections.abc import Iterator
from typing import Final

from autotest.results.moongen import COLOUR, Counter, MoonGenOutput

#: Mbit/s as printed, from which on a second without reception shows as one.
TELLING_MBIT: Final = 5.0
# A line comes when more than a second is over, which is looked at every 10 ms and later on a busy machine; and one second
# at the end may have none.
_LONGEST_SECOND = 1.05
_UNSEEN_SECONDS = 2.0
_CRC, _FRAMING = 4, 20  # bytes; the latter are preamble and gap
_SECOND_SENT = re.compile(
    r"TX: ([0-9]{1,6}\.[0-9]{1,6}) Mpps, ([0-9]{1,9}) Mbit/s \(([0-9]{1,9}) Mbit/s with framing\)$", re.MULTILINE
)


def dropouts(output: MoonGenOutput) -> tuple[int, ...] | None:
    """The seconds of the run, counted from 1, in which nothing was received though enough was sent to see it.

    RX and TX lines of the device with the traffic are paired by their number. The first and the last second are left out,
    as in MoonGen's own averages: sending begins and ends in them. An outage that covers no whole second between two lines
    shows as loss only; one of 2.1 s always shows.

    None where it cannot be told: no second tells (too short a run, too low a rate), or in none of those that do is reception
    to be seen. The latter is a DuT in receive livelock, or no reflection at all: what never worked has no drop-outs, and
    loss says how bad it is.
    """
    received, sent = output.device_counter("RX"), output.device_counter("TX")
    if received is None or sent is None:
        return None
    silent = []
    works = False
    for number, (mpps, mbit), (_, sent_mbit) in _inner_seconds(received, sent):
        if not sent_mbit >= TELLING_MBIT:  # also where it is nan
            continue
        if mbit == 0 and mpps == 0:
            silent.append(number)
        elif mbit >= TELLING_MBIT:
            works = True
            if not output.shows_silence:
                break
    return tuple(silent) if works else None


def _inner_seconds(received: Counter, sent: Counter) -> Iterator[tuple[int, tuple[float, float], tuple[float, float]]]:
    """Number, RX rates and TX rates of all seconds that have both, without the first and the last."""
    pairs = zip(itertools.count(1), received.rates(), sent.rates(), strict=False)  # an RX line may be left over
    next(pairs, None)
    for pair, _ in itertools.pairwise(pairs):
        yield pair


def longest_sending(output: MoonGenOutput) -> float | None:
    """For how many seconds frames were sent at most, by the number of lines; None where there is no line.

    A bound, not a measurement: it finds the generator that was ended early and did not say so.
    """
    sent = output.device_counter("TX")
    return sent.lines * _LONGEST_SECOND + _UNSEEN_SECONDS if sent and sent.lines else None


def shown_seconds(seconds: tuple[int, ...]) -> str:
    """Numbers of seconds for people: ``3, 12-14``."""
    ranges: list[list[int]] = []
    for second in seconds:
        if ranges and second == ranges[-1][-1] + 1:
            ranges[-1][1:] = [second]
        else:
            ranges.append([second])
    shown = ["-".join(map(str, each)) for each in ranges]
    return ", ".join(shown if len(shown) <= _MOST_SHOWN else [*shown[:_MOST_SHOWN], f"{len(shown) - _MOST_SHOWN} more times"])


_MOST_SHOWN = 10


def sending_rate(text: str, frame_bytes: float) -> tuple[float, float] | None:
    """The least and the greatest rate in kpps at which the load of the last whole second can have been sent.

    Of each of the three figures in its line only so many digits are printed; what fits all of them is closer than each. Where
    several devices send, which a test does not do, it is that of the last.

    Args:
        text: lines that the load program wrote.
        frame_bytes: size of the frames, on average, without CRC.
    """
    found = deque(_SECOND_SENT.finditer(COLOUR.sub("", text).replace("\r", "")), maxlen=1)
    if not found:
        return None
    mpps, mbit, wire_mbit = map(float, found[0].groups())
    frame_bits, wire_bits = (frame_bytes + _CRC) * 8, (frame_bytes + _CRC + _FRAMING) * 8
    each = [
        ((mpps - 0.005) * 1e3, (mpps + 0.005) * 1e3),
        ((mbit - 0.5) / frame_bits * 1e3, (mbit + 0.5) / frame_bits * 1e3),
        ((wire_mbit - 0.5) / wire_bits * 1e3, (wire_mbit + 0.5) / wire_bits * 1e3),
    ]
    least, most = max(0.0, *(least for least, _ in each)), min(most for _, most in each)
    return (least, most) if least <= most else (max(0.0, each[1][0]), each[1][1])  # of a mix, a second has another mean


def shown_rate(rate: tuple[float, float]) -> str:
    """A rate between these bounds in kpps for people, with no digit that says more than they do: ``20 kpps``, ``19-20 kpps``.

    One number between them could be mistaken for another rate than the offered one, which is as possible.
    """
    decimals = 0 if rate[1] - rate[0] >= 0.5 or rate[0] >= 1000 else 1
    least, most = (f"{bound:.{decimals}f}" for bound in rate)
    return f"{least} kpps" if least == most else f"{least}-{most} kpps"
