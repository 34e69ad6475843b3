"""The verdict of a trial: whether it may be merged, or why not; and the tolerances of which it depends.

``docs/verdicts.md`` says for users when each is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final


class Verdict(StrEnum):
    """What a trial's figures say about the trial itself. The values stand in ``trial_INFIX_repN.json``."""

    VALID = "valid"
    #: The achieved rate is below the offered one: a finding about the sender, plotted apart, never merged.
    UNDER_SENT = "under-sent"
    TOO_FEW_SAMPLES = "too-few-samples"
    #: More frames received than sent, or other totals than those of the interface, beyond the margin.
    COUNTER_MISMATCH = "counter-mismatch"
    NO_REFLECTION = "no-reflection"
    #: Something else ran on the testbed, or the testbed changed, or another load than the offered one was sent.
    DISTURBED = "disturbed"
    #: Some of the guests were not there, which the user allowed: another set-up than the one that the trial's name says.
    MISSING_GUESTS = "missing-guests"
    #: Final totals or files are missing, do not cover the run, or do not belong together.
    INCOMPLETE = "incomplete"

    @property
    def is_done(self) -> bool:
        """True where measuring again would bring nothing new."""
        return self in (Verdict.VALID, Verdict.UNDER_SENT)

    @property
    def is_mergeable(self) -> bool:
        """True where the histogram may be summed with those of other repetitions."""
        return self is Verdict.VALID


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Where a figure stops being good enough. In ``tests.conf`` each is a key, ``tolerance_`` and its name.

    Attributes:
        under_sent: share of the offered rate that may be missing. One per cent: above the rounding of frame spacing
            and of start and stop over a second or more, below the smallest step that a plot of rates shows.
        over_sent: share of the offered rate that may be sent beyond it. Ten per cent: NICs that pace the load round its
            limit (an Intel E810 sent 5 % too much, every time), which the achieved rate shows; one that does not
            limit it at all sends many times as much.
        stopped_early: share of the runtime that may be missing at the end; somebody or something ended a generator
            that stops before. Two per cent: twice what may be missing of the rate.
        dropout_seconds: seconds without reception, of a run that receives otherwise. None: not one is the load's doing.
        min_samples: fewest latency samples. With fewer than 100 the 99th percentile is just the largest sample.
        in_flight_frames: frames by which two counters of the same frames may differ: received beyond those sent, or the
            generator's and its interface's; as many for each further minute of the run. One batch of MoonGen (63 frames) may
            be counted on one side only, and frames of others (neighbour discovery, spanning tree) reach the loadgen too.
        in_flight_share: the same as a share of the frames sent, for long trials; the larger one of both holds.
        no_reflection: share of the frames sent below which, without any latency sample, what came in is taken for
            other traffic and nothing was reflected.
    """

    under_sent: float = 0.01
    over_sent: float = 0.1
    stopped_early: float = 0.02
    dropout_seconds: int = 0
    min_samples: int = 100
    in_flight_frames: int = 64
    in_flight_share: float = 1e-5
    no_reflection: float = 0.01

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> Tolerances:
        """From the settings of a section of ``tests.conf`` or of a trial's record; the default for what is not there."""
        keys = {field.name: TOLERANCE_PREFIX + field.name for field in fields(cls)}
        return cls(**{name: settings[key] for name, key in keys.items() if key in settings})


TOLERANCE_PREFIX: Final = "tolerance_"
DEFAULT_TOLERANCES: Final = Tolerances()
