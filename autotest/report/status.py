"""The state of a campaign as text: one table per section, what failed, and when the rest is done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from textwrap import shorten, wrap
from typing import TYPE_CHECKING, Final

from autotest.report.parameters import names_of
from autotest.report.tables import render_table
from autotest.results.store import FAILURES_FILE
from autotest.results.verdicts import Verdict

if TYPE_CHECKING:
    from autotest.run.estimate import Estimate
    from autotest.run.status import (
        OpenFailure,
        SectionStatus,
        SetUpStatus,
        Status,
    )

WIDTH: Final = 100
_SHOWN_FAILURES: Final = 10


def status_lines(status: Status, now: datetime) -> Iterator[str]:
    """The lines for the user; ``now`` is local time, from which on the rest is expected to take its time."""
    for section in status.sections:
        yield from _section(section)
        yield ""
    yield from _failures(status.failures)
    total = status.total
    if len(status.sections) > 1:
        yield f"in all {trials(total.done + total.to_do)}, {total.done} done, {total.to_do} to do"
    yield from ending(total.done, status.remaining, now)


def _section(section: SectionStatus) -> Iterator[str]:
    yield f"[{section.section.name}] of {section.section.file}, results in {section.directory}"
    if section.shared:
        yield f"{trials(section.shared)} of it counted with a section above, which has the same"
    if not section.set_ups:
        if not section.shared:
            yield "no valid combination of parameters: test-load-lat-file --dry-run says why"
        return
    set_ups = [dict(label.split(" ", 1) for label in row.labels) for row in section.set_ups]
    names = names_of(sorted(set_ups, key=len, reverse=True))
    differing = [name for name in names if len({set_up.get(name) for set_up in set_ups}) > 1]
    if common := [label for label in section.set_ups[0].labels if label.split(" ", 1)[0] not in differing]:
        yield from wrap(f"all with {', '.join(common)}", WIDTH)
    columns = {name: [set_up.get(name, "-") for set_up in set_ups] for name in differing}
    rows = list(section.set_ups)
    if len(rows) > 1:
        rows.append(section.total)
        for number, cells in enumerate(columns.values()):
            cells.append("" if number else "all")
    yield from _table(rows, columns)


def _table(rows: Sequence[SetUpStatus], set_up: Mapping[str, list[str]]) -> Iterator[str]:
    """What the set-ups differ in, then counts; columns about the unusual are left out where nothing is in them."""
    columns = [
        *((name, "l", cells, True) for name, cells in set_up.items()),
        ("done", "r", [str(row.done) for row in rows], True),
        ("to do", "r", [str(row.to_do) for row in rows], True),
        ("failed", "r", [str(row.failed) for row in rows], True),
        ("held back", "r", [str(row.held_back) for row in rows], any(row.held_back for row in rows)),
        ("invalid", "l", [_counts(row.invalid) or "0" for row in rows], True),
        ("of the done", "l", [_findings(row) for row in rows], any(row.findings for row in rows)),
    ]
    chosen = [(title, align, cells) for title, align, cells, is_shown in columns if is_shown]
    header = [title for title, _, _ in chosen]
    cells = list(zip(*(cells for _, _, cells in chosen), strict=True))
    yield from render_table(header, cells, align="".join(align for _, align, _ in chosen))


def _findings(row: SetUpStatus) -> str:
    found = _counts(row.findings)
    return f"{found} ({row.accepted} accepted)" if row.accepted else found


def _counts(verdicts: Counter[Verdict]) -> str:
    return ", ".join(f"{verdicts[verdict]} {verdict}" for verdict in Verdict if verdicts[verdict])


def _failures(failures: Sequence[OpenFailure]) -> Iterator[str]:
    if not failures:
        return
    yield f"failed for good, and not measured since ({FAILURES_FILE} has all of it; the next run tries again):"
    for noted, blocked in failures[-_SHOWN_FAILURES:]:
        when = f"{noted.time.astimezone():%Y-%m-%d %H:%M}  " if noted.time else ""
        yield f"  {when}{_line(noted.what)}" + (f": {trials(blocked)}" if not noted.trial else "")
        yield f"      {shorten(_line(noted.reason), WIDTH - 6, placeholder=' ...')}"
    if len(failures) > _SHOWN_FAILURES:
        yield f"  and {len(failures) - _SHOWN_FAILURES} before these"
    yield ""


def trials(number: int) -> str:
    """A number of trials in words."""
    return "1 trial" if number == 1 else f"{number} trials"


def _set_ups(number: int) -> str:
    return "1 set-up" if number == 1 else f"{number} set-ups"


def _line(text: str) -> str:
    """The first of several."""
    return next(iter(text.strip().splitlines()), "")


def ending(done: int, remaining: Estimate, now: datetime) -> Iterator[str]:
    """What is still to do and how long that takes, from that local time on."""
    if not remaining.trials:
        yield "all done" if done else "nothing to do"
        return
    end = now + timedelta(seconds=remaining.seconds + 30)  # shown to the minute, rounded
    finish = f"{end:%H:%M}" if end.date() == now.date() else f"{end:%Y-%m-%d %H:%M}"
    what = f"{trials(remaining.trials)} on {_set_ups(remaining.set_ups)} {'takes' if remaining.trials == 1 else 'take'}"
    yield f"{what} about {duration(remaining.seconds)} (finishes about {finish} if it runs from now on)"
    if remaining.assumed:
        added = " and ".join(f"{seconds:g} s for each {what}" for what, seconds in remaining.assumed.items())
        yield f"rough: {'nothing' if len(remaining.assumed) == 2 else 'too little'} measured yet, {added} added"


def duration(seconds: float) -> str:
    """A time in the two units that matter: ``2 h 10 min``.

    >>> duration(7830), duration(42), duration(200), duration(180000)
    ('2 h 10 min', '42 s', '3 min', '2 d 2 h')
    """
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    minutes = round(whole / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min"
    days, hours = divmod(round(whole / 3600), 24)
    return f"{days} d {hours} h"
