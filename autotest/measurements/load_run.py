"""What one run of the load generator comes to: a trial with figures and a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.errors import ResultsError, TrafficError
from autotest.measurements.kind import Trial
from autotest.results.verdicts import Tolerances, Verdict
from autotest.traffic.moongen import ProgramEnd

if TYPE_CHECKING:  # numpy: not needed before a trial is measured
    from autotest.results.figures import Figures, Judgement
    from autotest.results.moongen import MoonGenOutput

_CLOCK_TOLERANCE = 0.1  # seconds by which a clock may be set during a trial; uptime has a resolution of 0.01 s
_CLOCK_DRIFT = 0.001  # seconds a second: NTP corrects a clock by at most half of it
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
        files: the ``output`` and, if there is one, the ``histogram``.
    """

    program: str
    end: ProgramEnd
    rate: int
    runtime: int
    times: tuple[datetime, datetime]
    files: Mapping[str, Path]

    def judged(self, tolerances: Tolerances, breakdown: Callable[[], str]) -> Trial:
        """The figures of the run and the verdict on them.

        Args:
            tolerances: from where on a figure is not good enough.
            breakdown: asked where frames are missing: what of the testbed broke meanwhile, empty where nothing did.

        Raises:
            TrafficError: the generator ended before it had anything to say; with the last lines of its output.
        """
        from autotest.results.figures import verdict
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
            tolerances=tolerances,
        )
        return self._trial(found, judgement)

    def _figures(self, output: MoonGenOutput, tolerances: Tolerances) -> Figures:
        """A histogram that cannot be read makes the trial incomplete, but both its files are kept."""
        from autotest.results.figures import figures
        from autotest.results.histogram import Histogram, parse_histogram

        latencies, unreadable = None, ""
        path = self.files["histogram"]
        try:
            there = path.exists()
            latencies = parse_histogram(path.read_bytes(), "the histogram", allow_empty=True) if there else Histogram.of({})
        except ResultsError as error:
            unreadable = str(error)
        ran = min(self.runtime, self.end.seconds or self.runtime)  # it sent no longer than it ran
        return figures(output, latencies, ran, tolerances, interface=self.end.interface, unreadable=unreadable)

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
        loss = "unknown" if found.loss is None else f"{found.loss:.2%}"
        median = "unknown" if found.p50_ns is None else f"{found.p50_ns / 1000:.1f} us"
        line = f"achieved {found.achieved_kpps or 0:.2f} kpps, loss {loss}, median {median}, {judgement.verdict}"
        problem = None if judgement.verdict.is_done else f"{judgement.verdict}: {judgement.reason}"
        kept = {kind: path for kind, path in self.files.items() if path.exists()}
        return Trial(kept, record, line, problem, blames_set_up=judgement.verdict is Verdict.NO_REFLECTION)
