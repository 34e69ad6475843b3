"""What lies in an output directory: the files of trials by name, and by name whatever else there is."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from autotest.errors import ResultsError
from autotest.report.parameters import PARAMETERS
from autotest.report.plots import FORMATS, KINDS
from autotest.report.reading import Complaint, Parameters, Source
from autotest.results.names import (
    SUFFIXES,
    TrialName,
    parse_file_name,
    parse_load_latency_infix,
)
from autotest.results.signatures import Signature, signature
from autotest.results.store import FAILURES_FILE, INVALID_DIRECTORY

OWN: Final = re.compile(
    rf"{re.escape(FAILURES_FILE)}|{INVALID_DIRECTORY}|\.autotest-.*|report\.html"
    rf"|({'|'.join(KINDS.values())})(_[A-Za-z0-9+_-]*)?\.({'|'.join(FORMATS)})"
).fullmatch
"""What autotest itself puts there beside the files of trials and their sums: nothing to complain of."""

_GUESTS = re.compile(r"_guests([0-9]{1,9})(?=_)")
_SHOWN_NAMES: Final = 5


@dataclass
class Listing:
    """A directory's content.

    Attributes:
        files: signatures by kind, by infix and repetition.
        unusable: names of trials' files under which there is something else, likewise.
        foreign: names that no autotest gave.
        count: how many files and folders there are in all.
    """

    files: dict[tuple[str, int], dict[str, Signature]] = field(default_factory=dict)
    unusable: dict[tuple[str, int], list[Complaint]] = field(default_factory=dict)
    foreign: list[str] = field(default_factory=list)
    count: int = 0


def list_directory(directory: Path) -> Listing:
    """ResultsError where there is no such directory, or it cannot be read."""
    found = Listing()
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                _add(entry, found)
    except FileNotFoundError as error:
        raise ResultsError(f"{directory}: no such directory") from error
    except OSError as error:
        raise ResultsError(f"{directory}: {error.strerror}") from error
    return found


def _add(entry: os.DirEntry[str], found: Listing) -> None:
    found.count += 1
    parsed = parse_file_name(entry.name)
    if parsed is None:
        if not OWN(entry.name):
            found.foreign.append(entry.name)
        return
    if parsed.repetition is None:
        return
    trial = parsed.infix, parsed.repetition
    files = found.files.setdefault(trial, {})
    try:
        status = entry.stat()
    except FileNotFoundError:
        problem = "a link to nothing" if entry.is_symlink() else ""  # or gone since
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    else:
        if stat.S_ISREG(status.st_mode):
            files[parsed.kind] = signature(status)
            return
        problem = "a folder, not a file" if stat.S_ISDIR(status.st_mode) else "not a file that can be read"
    if problem:
        found.unusable.setdefault(trial, []).append(Complaint(entry.name, problem))


def sources(listing: Listing, infixes: Iterable[str] | None = None) -> tuple[list[Source], list[Complaint]]:
    """The load latency trials, by infix and repetition, and what is no such trial.

    Args:
        infixes: only trials of these, in that order.
    """
    order = None if infixes is None else {infix: number for number, infix in enumerate(infixes)}
    known: dict[str, Parameters | None] = {}
    found = []
    unknown = []
    for (infix, repetition), files in sorted(listing.files.items(), key=lambda item: _place(item[0], order)):
        if order is not None and infix not in order:
            continue
        if infix not in known:
            known[infix] = _parameters(infix)
        parameters = known[infix]
        unusable = listing.unusable.get((infix, repetition), ())
        if parameters is not None and (files or unusable):
            found.append(Source(TrialName(infix, repetition), parameters, files, tuple(unusable)))
        elif parameters is None:
            name = TrialName(infix, repetition)
            unknown += [name.file(kind) for kind in SUFFIXES if kind in files] or [complaint.file for complaint in unusable]
    complaints = summarised(unknown, "the name is not that of a load latency trial")
    return found, complaints + summarised(sorted(listing.foreign), "no file of autotest's; it is left alone")


def _place(trial: tuple[str, int], order: dict[str, int] | None) -> tuple[int, str, int, int]:
    """By name, but one guest before two, and two before ten."""
    infix, repetition = trial
    guests = _GUESTS.search(infix)
    alike = infix.replace(guests[0], "", 1) if guests else infix
    return (order.get(infix, 0) if order else 0, alike, int(guests[1]) if guests else 1, repetition)


def _parameters(infix: str) -> Parameters | None:
    parsed = parse_load_latency_infix(infix)
    if parsed is None:
        return None
    return {name: value for name in PARAMETERS if (value := getattr(parsed, name)) is not None}


def summarised(names: list[str], message: str) -> list[Complaint]:
    """One complaint about many files: the first names and the count."""
    if not names:
        return []
    more = f" and {len(names) - _SHOWN_NAMES} more" if len(names) > _SHOWN_NAMES else ""
    return [Complaint(", ".join(names[:_SHOWN_NAMES]) + more, message)]
