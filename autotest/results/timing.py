"""How long a trial took, and the set-up before it: ``timing`` of ``trial_*.json``, from which later runs are estimated."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

ENTERED: Final = "entered"
CHANGED: Final = "changed"
LEFT: Final = "left"
WAYS: Final = (ENTERED, CHANGED, LEFT)


class Step(NamedTuple):
    """A stage that was entered, changed from one value to another, or left, and the seconds that it took."""

    stage: str
    way: str
    seconds: float


class Timing(NamedTuple):
    """What a record tells of the time; nothing of it must be there.

    Attributes:
        seconds: of the trial, from its set-up being complete on: rest, warm-up, load, drain, figures.
        least: of these, what was asked for: rest, warm-up and load.
        steps: what was done before it since the trial before, in order; of what was repeated, the last time.
        start: seconds of the run before its first set-up; only the first trial of a run tells.
        ended: when the load ended, as the record has it, where it does not tell how long the trial took.
    """

    seconds: float | None = None
    least: float = 0.0
    steps: tuple[Step, ...] = ()
    start: float | None = None
    ended: object = None

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Timing:
        """From a trial's record; what is not as it should be is left out."""
        found = record.get("timing")
        timing = found if isinstance(found, dict) else {}
        seconds, least = _seconds(timing.get("seconds")), _seconds(timing.get("least"))
        if seconds is None or least is None:
            seconds, least = None, 0.0
        ended = record.get("ended") if seconds is None else None
        return cls(seconds, least, tuple(_steps(timing.get("set_up"))), _seconds(timing.get("start")), ended)

    def record(self) -> dict[str, Any]:
        """As a record has it: seconds to the millisecond."""
        start = {} if self.start is None else {"start": round(self.start, 3)}
        set_up = [step._replace(seconds=round(step.seconds, 3))._asdict() for step in self.steps]
        return {"seconds": round(self.seconds or 0.0, 3), "least": self.least, "set_up": set_up, **start}


def _steps(found: object) -> Iterable[Step]:
    for step in found if isinstance(found, list) else ():
        if isinstance(step, dict) and (seconds := _seconds(step.get("seconds"))) is not None and step.get("way") in WAYS:
            yield Step(str(step.get("stage")), step["way"], seconds)


def _seconds(found: object) -> float | None:
    """A time that can be; None for anything else."""
    if isinstance(found, bool) or not isinstance(found, int | float):
        return None
    return float(found) if math.isfinite(found) and found >= 0 else None
