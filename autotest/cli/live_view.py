"""The live view of a run, as lines for a terminal of any width: where it is, what it does, how far it is.

Colours are from the eight that every terminal has, without those that are hard to read on a light or on a dark background:
yellow, white, cyan and blue.
"""

from __future__ import annotations

import math
import os
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from autotest.cli.progress import INTERRUPTED, Progress
from autotest.cli.screen import Line
from autotest.errors import printable
from autotest.report.status import duration
from autotest.run import interruption
from autotest.run.runner import End

_WIDEST = 120  # columns: the eye does not find its way along longer lines
_NARROWEST = 20
_GAP = "   "


class LiveView:
    """Renders the progress of a run for the terminal that a stream is."""

    def __init__(self, progress: Progress, stream: TextIO) -> None:
        self._progress = progress
        self._console = Console(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)

    def frame(self, size: os.terminal_size) -> list[Line]:
        """The lines for a terminal of that size. The last column stays free: what stands there may wrap."""
        console = self._console
        console.width = max(_NARROWEST, min(_WIDEST, size.columns - 1))
        with console.capture() as captured:
            console.print(self._view(console.width), end="")
        lines = captured.get().rstrip("\n").split("\n")
        return [Line(line, Text.from_ansi(line).cell_len) for line in lines]

    def _view(self, width: int) -> RenderableType:
        return Group(Rule(style="dim"), *self._where(), self._what(), self._bar(), *self._how_far(width))

    def _where(self) -> list[Text]:
        progress = self._progress
        if progress.job is None:
            return []
        section = Text.assemble((_shown(progress.job.group), "bold"), ": " * bool(progress.job.group), _shown(*progress.set_up))
        trial = Text.assemble((f"trial {progress.position + 1}/{progress.total}", "bold"), ": ", _shown(*progress.trial))
        if progress.attempt:
            trial.append(f", attempt {progress.attempt + 1} of {progress.job.retries + 1}", "magenta")
        return [section, trial] if progress.left else [section]

    def _what(self) -> Text:
        step = self._progress.step
        elapsed = self._progress.now() - step.since
        text = Text.assemble((_shown(step.name), "bold"))
        if step.seconds is None:
            text.append(f", {_clock(elapsed)}")
        elif elapsed < step.seconds:
            text.append(f", {_clock(math.ceil(step.seconds - elapsed))} left")
        else:
            text.append(", about to end")
        if self._progress.reading:
            text.append(f"{_GAP}{_shown(self._progress.reading)}", "bold green")
        if interruption.requested():
            text = Text.assemble((INTERRUPTED, "bold red"), "\n", text)
        return text

    def _bar(self) -> Table:
        total, position = max(1, self._progress.total), self._progress.position
        row = Table.grid(padding=(0, 1), expand=True)
        row.add_column(ratio=1)
        row.add_column(justify="right")
        bar = ProgressBar(total, position, style="bright_black", complete_style="green", finished_style="green")
        row.add_row(bar, f"{position * 100 // total} %")
        return row

    def _how_far(self, width: int) -> list[Text]:
        """The counts, and the times: on the same line where there is room for both."""
        counts, times = self._counts(), self._times()
        room = width - counts.cell_len - times.cell_len
        if room < len(_GAP):
            return [counts, times]
        return [Text.assemble(counts, " " * room, times)]

    def _counts(self) -> Text:
        progress = self._progress
        before = f" ({progress.before} before)" if progress.before else ""
        parts = [
            (f"{progress.done} done{before}", "green"),
            _count(progress.counts[End.FAILED], "failed", "bold red"),
            _count(progress.counts[End.INVALID], "invalid", "bold magenta"),
            *([_count(progress.counts[End.NOT_TRIED], "not tried", "red")] if progress.counts[End.NOT_TRIED] else []),
            (f"{progress.left} left", "bold"),
        ]
        return Text(", ").join(Text(*part) for part in parts)

    def _times(self) -> Text:
        progress = self._progress
        text = Text(f"{_clock(progress.now() - progress.begin)} elapsed")
        if progress.remaining is not None and not interruption.requested():
            text.append(f", about {duration(progress.remaining)} left")
        return text


def _shown(*texts: str) -> str:
    """Names and values are the user's: none of them gives orders to the terminal, or begins a line."""
    return " ".join(printable(", ".join(texts)).split())


def _count(number: int, what: str, style: str) -> tuple[str, str]:
    return f"{number} {what}", style if number else "dim"


def _clock(seconds: float) -> str:
    """Seconds as they tick.

    >>> _clock(7), _clock(252.9), _clock(3723)
    ('7 s', '4:12', '1:02:03')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{rest:02d}"
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"
