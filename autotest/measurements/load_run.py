"""What one run of the load generator comes to: a trial with figures and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.errors import ResultsError, TrafficError
from autotest.measurements.kind import Trial
from autotest.results.verdicts import Tolerances, Verdict
from autotest.traffic.moongen import ProgramEnd

if TYPE_CHECKING:  # numpy: not needed before a trial is measured
    from autotest.results.figures import Figures, Judgement
    from autotest.results.histogram import Histogram
    from autotest.results.moongen import MoonGenOutput

_CLOCK_TOLERANCE = 0.1  # seconds by which a clock may be set during a trial; uptime has a resolution of 0.01 s
_CLOCK_DRIFT = 0.001  # seconds a second: NTP corrects a clock by at most half of it
_SET_UP_IS_TO_BLAME = (Verdict.NO_REFLECTION, Verdict.MISSING_GUESTS)
_TAIL_LINES = 15  # of the generator's output, for an error message


@dataclass(frozen=True)
class Run:
    """One run of the load generator.

    Attributes:
        program: what ran.
        end: how it ended.
        rate: the offered load in kpps.
        runtime: for how many seconds it was to be sent.
        times: when it started and ended.
        files: the ``output`` and, if there is one, the ``histogram``; with several guests also ``guests``, their histograms by
            the places of the generator's addresses, counted from 1.
        guests: the numbers of the guests that the load went to, in the order of those addresses; none where it went to one.
        weights: their shares of the load, in the same order; none where all have the same.
        missing: guests that should have been there but were not, which the user allowed: reasons by name.
    """

    program: str
    end: ProgramEnd
    rate: int
    runtime: int
    times: tuple[datetime, datetime]
    files: Mapping[str, Path]
    guests: tuple[int, ...] = ()
    weights: tuple[int, ...] = ()
    missing: Mapping[str, str] = field(default_factory=dict)

    def judged(self, tolerances: Tolerances, breakdown: Callable[[], str]) -> Trial:
        """The figures of the run and the verdict on them.

        Args:
            tolerances: from where on a figure is not good enough.
            breakdown: asked where frames are missing: what of the testbed broke meanwhile, empty where nothing did.

        Raises:
            TrafficError: the generator ended before it had anything to say; with the last lines of its output.
        """
        from autotest.results.figures import verdict
        from autotest.results.guests import missing_in_words
        from autotest.results.moongen import parse_moongen_output

        output = parse_moongen_output(self.end.output)
        if self.end.code != 0 and not output.complete:
            tail = "\n".join(self.end.output.splitlines()[-_TAIL_LINES:])
            raise TrafficError(f"loadgen: {self.program} ended with exit code {self.end.code}:\n{tail}")
        found = self._figures(output, tolerances)
        disturbed = self._disturbance() or (found.lost != 0 and breakdown()) or ""
        judgement = verdict(
            found,
            self.rate,
            runtime=self.runtime,
            exit_code=self.end.code,
            disturbed=disturbed,
            missing=missing_in_words(self.missing, max(1, len(self.guests))),
            tolerances=tolerances,
        )
        return self._trial(found, judgement)

    def _figures(self, output: MoonGenOutput, tolerances: Tolerances) -> Figures:
        """A histogram that cannot be read makes the trial incomplete, but all its files are kept."""
        from autotest.results.figures import figures

        latencies, of_guests, unreadable = None, None, ""
        try:
            latencies = self._latencies()
            of_guests = self._guest_latencies()
        except ResultsError as error:
            unreadable = str(error)
        return figures(
            output,
            latencies,
            min(self.runtime, self.end.seconds or self.runtime),  # it sent no longer than it ran
            tolerances,
            interface=self.end.interface,
            unreadable=unreadable,
            guests=self.guests,
            weights=self.weights,
            guest_latencies=of_guests,
        )

    def _latencies(self) -> Histogram:
        from autotest.results.histogram import Histogram, parse_histogram

        path = self.files["histogram"]
        return parse_histogram(path.read_bytes(), "the histogram", allow_empty=True) if path.exists() else Histogram.of({})

    def _guest_latencies(self) -> dict[int, Histogram] | None:
        """Those of several guests, by number; None where there are not several. The file then has these numbers, too."""
        from autotest.results.guest_latencies import (
            format_guest_latencies,
            parse_guest_latencies,
            renumbered,
        )

        path = self._guests_file
        if path is None:
            return None
        if not path.exists():
            return {}
        found = parse_guest_latencies(path.read_bytes(), "the guests' histograms")
        numbered = renumbered(found, self.guests)
        if list(numbered) != list(found):
            path.write_bytes(format_guest_latencies(numbered))
        return numbered

    @property
    def _guests_file(self) -> Path | None:
        return self.files.get("guests") if len(self.guests) > 1 else None

    def _disturbance(self) -> str:
        """Why the samples cannot be trusted; empty where they can."""
        jump = self.end.clock_jump
        if jump is not None and abs(jump) > _CLOCK_TOLERANCE + _CLOCK_DRIFT * self.end.seconds:
            return f"the load generator's clock jumped by {jump:+.2f} s"
        return ""

    def _trial(self, found: Figures, judgement: Judgement) -> Trial:
        record = {
            "verdict": judgement.verdict,
            "reason": judgement.reason,
            "figures": found.to_dict(),
            "exit_code": self.end.code,
            "started": self.times[0].isoformat(),
            "ended": self.times[1].isoformat(),
        }
        if self.missing:
            record["missing_guests"] = dict(self.missing)
        loss = "unknown" if found.loss is None else f"{found.loss:.2%}"
        median = "unknown" if found.p50_ns is None else f"{found.p50_ns / 1000:.1f} us"
        shared = "" if found.fairness is None else f", fairness {found.fairness:.3f} of {len(found.guests)} guests"
        line = f"achieved {found.achieved_kpps or 0:.2f} kpps, loss {loss}, median {median}{shared}, {judgement.verdict}"
        problem = None if judgement.verdict.is_done else f"{judgement.verdict}: {judgement.reason}"
        files = {**self.files, "guests": self._guests_file}
        kept = {kind: path for kind, path in files.items() if path is not None and path.exists()}
        return Trial(kept, record, line, problem, blames_set_up=judgement.verdict in _SET_UP_IS_TO_BLAME)
