"""The sum over repetitions of each test case: ``acc_histogram_INFIX.csv``.

What was summed from which files is kept in ``.autotest-accumulated.json`` beside the results. A case is left as it is
only where all its trials' files, and the sum itself, still have the inode, size and times that stand there; losing
that file, or copying the directory, costs a new reading and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from autotest.errors import ResultsError
from autotest.results import files as whole
from autotest.results.histogram import (
    Histogram,
    format_histogram,
    parse_histogram,
    sum_histograms,
)
from autotest.results.names import (
    ACC_HISTOGRAM,
    HISTOGRAM,
    OUTPUT,
    TrialName,
    acc_histogram_file,
    parse_file_name,
    parse_load_latency_infix,
)
from autotest.results.older import judge_older
from autotest.results.signatures import (
    SETTLED_NS,
    Signature,
    are_settled,
    signature,
)
from autotest.results.store import INVALID_DIRECTORY, ResultStore

STATE_FILE: Final = ".autotest-accumulated.json"
STATE_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Accumulated:
    """One test case: the repetitions that were summed, and whether its file had to be written or taken away."""

    infix: str
    repetitions: tuple[int, ...]
    changed: bool


def accumulate(
    outputdir: Path, infixes: Iterable[str] | None = None, repetitions: Collection[int] | None = None
) -> list[Accumulated]:
    """Bring the sums over repetitions up to date; returns what each test case's sum is made of.

    Summed are the repetitions with verdict ``valid``, for trials of the older tool the one that their figures give, and those whose verdict somebody
    accepted, as their records say; with a single one the file is written all the same, so that every measured case has
    one. Where none is left, a sum that is there moves to ``invalid/``: it holds what may not be merged. A sum without any
    trial of its case is left alone.

    Args:
        infixes: test cases; None for all in the directory.
        repetitions: the repetitions that may be summed; None for all there are.

    Raises ResultsError where a file cannot be read or written, or comes from a newer autotest.
    """
    store = ResultStore(outputdir)
    listing = _listing(outputdir)
    cases = _cases(listing, infixes, repetitions)
    state = _read_state(outputdir / STATE_FILE)
    results = []
    changed = False

    def one(infix: str) -> tuple[Accumulated, dict[str, Any] | None]:
        return _accumulate_case(store, infix, cases[infix], listing, state.get(infix))

    try:
        # Threads help: array operations, checksums and files all let another one run meanwhile.
        with _frequent_switches(), ThreadPoolExecutor(max_workers=min(2, os.cpu_count() or 1)) as pool:
            for result, entry in pool.map(one, cases):
                results.append(result)
                if entry is not None:
                    state[result.infix] = entry
                    changed = True
    except OSError as error:
        raise ResultsError(f"{error.filename or outputdir}: cannot accumulate: {error.strerror}") from error
    finally:
        if changed:
            _write_state(outputdir / STATE_FILE, state)
    return results


@contextmanager
def _frequent_switches() -> Iterator[None]:
    """Array operations are much shorter than the 5 ms that one thread may keep the interpreter: 12 % of the time."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)


def _accumulate_case(
    store: ResultStore,
    infix: str,
    found: Mapping[int, Collection[str]],
    listing: Mapping[str, Signature],
    known: Mapping[str, Any] | None,
) -> tuple[Accumulated, dict[str, Any] | None]:
    """One test case; also returns the new entry for the state file, None where nothing had to be done."""
    name = acc_histogram_file(infix)
    sources = {file: listing[file] for files in found.values() for file in files}
    if known and known.get("settled") and known["sources"] == sources and known["sum"] == listing.get(name):
        return Accumulated(infix, tuple(known["repetitions"]), False), None
    started = time.time_ns()
    parts: dict[int, Histogram] = {}
    for repetition in sorted(found):
        stored = store.load(TrialName(infix, repetition))
        if stored.verdict.is_mergeable or (stored.is_accepted and stored.files.get(HISTOGRAM)):
            histogram = parse_histogram(stored.files[HISTOGRAM], str(store.path(stored.name, HISTOGRAM)))
            if stored.trial is not None or _is_valid_older(infix, stored.files[OUTPUT], histogram):
                parts[repetition] = histogram
    path = store.outputdir / name
    changed = _write_sum(path, format_histogram(sum_histograms(parts.values())) if parts else None)
    entry = {
        "repetitions": list(parts),
        "sources": sources,
        "sum": signature(path.stat()) if parts else None,
        "settled": are_settled(sources.values(), started, SETTLED_NS),
    }
    return Accumulated(infix, tuple(parts), changed), entry


def _is_valid_older(infix: str, output: bytes, histogram: Histogram) -> bool:
    """Whether a trial of the older tool may be merged: to be done it need only be whole."""
    case = parse_load_latency_infix(infix)
    return case is None or judge_older(output, histogram, case.rate, case.runtime)[1].verdict.is_mergeable


def _write_sum(path: Path, content: bytes | None) -> bool:
    """Make the file hold this content, or be away; True where it had to change.

    Not synced: a power failure shows in the signature, and the sum can be made again.
    """
    there = whole.read_bytes(path)
    if there == content:
        return False
    if content is not None:
        whole.write_atomically(path, content, sync=False)
        return True
    folder = path.parent / INVALID_DIRECTORY
    whole.make_directory(folder)
    number = 1
    while (kept := folder / f"{path.stem}.{number}{path.suffix}").exists():
        number += 1
    os.replace(path, kept)
    return True


def _cases(
    listing: Collection[str], infixes: Iterable[str] | None, repetitions: Collection[int] | None
) -> dict[str, dict[int, list[str]]]:
    """Files by test case and repetition, of what was asked for and is there."""
    there = {parsed.infix for name in listing if (parsed := parse_file_name(name))}
    wanted = there if infixes is None else {infix for infix in infixes if infix in there}
    cases: dict[str, dict[int, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in sorted(listing):
        parsed = parse_file_name(name)
        if parsed is None or parsed.kind == ACC_HISTOGRAM or parsed.infix not in wanted:
            continue
        if parsed.repetition is not None and (repetitions is None or parsed.repetition in repetitions):
            cases[parsed.infix][parsed.repetition].append(name)
    return cases


def _listing(outputdir: Path) -> dict[str, Signature]:
    """Signatures of all files in the directory; empty where there is no directory."""
    try:
        with os.scandir(outputdir) as entries:
            return {entry.name: signature(entry.stat()) for entry in entries if entry.is_file()}
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ResultsError(f"{outputdir}: {error.strerror}") from error


def _read_state(path: Path) -> dict[str, dict[str, Any]]:
    """Entries by infix; none where the file is missing, damaged or of another version."""
    try:
        document = json.loads(whole.read_bytes(path) or b"null")
        if document["version"] != STATE_VERSION:
            return {}
        return {
            infix: entry
            for infix, entry in document["cases"].items()
            if entry.keys() >= {"repetitions", "sources", "sum", "settled"}
        }
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def _write_state(path: Path, state: Mapping[str, Any]) -> None:
    content = json.dumps({"version": STATE_VERSION, "cases": state}, separators=(",", ":")).encode()
    try:
        whole.write_atomically(path, content, sync=False)
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
