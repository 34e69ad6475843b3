"""Plots of an output directory: latency, loss and throughput over the offered rate, latency and loss over the number of
guests, and distributions of the latency.

:func:`autotest.report.plots.figure.draw` makes a figure of test cases, :mod:`autotest.report.plots.files` names and writes
it. This module alone is quick to import.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

KINDS: Final = {
    "latency": "load_latency",
    "loss": "packet_loss",
    "throughput": "throughput",
    "cdf": "latency_cdf",
    "histogram": "latency_histogram",
    "guests": "over_guests",
}
"""What ``--kind`` takes, and what the files begin with."""
DEFAULT_KINDS: Final = ("latency", "loss", "throughput")
"""Without ``--kind``; also ``guests`` where there are several numbers of them."""
FORMATS: Final = ("png", "pdf", "svg")
DEFAULT_FORMATS: Final = ("png", "pdf")


@dataclass(frozen=True)
class View:
    """How test cases are shown.

    Attributes:
        by: the parameters that tell lines apart; empty: all that differ.
        beside: the parameter whose values stand side by side; empty: none.
        log: the y axis of losses and of histograms is logarithmic.
    """

    by: tuple[str, ...] = ()
    beside: str = ""
    log: bool = False
