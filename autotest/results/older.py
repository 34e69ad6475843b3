"""Trials of the older tool: without a record of ours, their verdict is what their two files give, whenever they are read."""

from __future__ import annotations

from autotest.results.figures import Figures, Judgement, figures, verdict
from autotest.results.histogram import Histogram, Summary
from autotest.results.moongen import parse_moongen_output


def judge_older(output: bytes, latencies: Histogram | Summary | None, rate: float, runtime: float) -> tuple[Figures, Judgement]:
    """Figures and verdict, with the default tolerances.

    Args:
        rate, runtime: in kpps and seconds, as the name has them: what was asked for.
    """
    found = figures(parse_moongen_output(output), latencies, runtime)
    return found, verdict(found, rate, runtime=runtime)
