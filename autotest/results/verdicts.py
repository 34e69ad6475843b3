"""The verdict of a trial: whether it may be merged, or why not."""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """What a trial's figures say about the trial itself. The values stand in ``trial_INFIX_repN.json``."""

    VALID = "valid"
    #: The achieved rate is below the offered one: a finding about the sender, plotted apart, never merged.
    UNDER_SENT = "under-sent"
    TOO_FEW_SAMPLES = "too-few-samples"
    #: More frames received than sent, beyond the margin: the counters count something else as well.
    COUNTER_MISMATCH = "counter-mismatch"
    NO_REFLECTION = "no-reflection"
    #: Something else ran on the testbed, or the testbed changed, while the trial ran.
    DISTURBED = "disturbed"
    #: Final totals or files are missing.
    INCOMPLETE = "incomplete"

    @property
    def is_done(self) -> bool:
        """True where measuring again would bring nothing new."""
        return self in (Verdict.VALID, Verdict.UNDER_SENT)

    @property
    def is_mergeable(self) -> bool:
        """True where the histogram may be summed with those of other repetitions."""
        return self is Verdict.VALID
