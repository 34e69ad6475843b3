"""What the files of trials say: read in batches, by as many processes as there are processors where it is much.

Memory is what one batch in each process takes, however many trials there are.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import logging
import multiprocessing
import os
import re
import signal
import sys
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from multiprocessing.connection import Connection, wait
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from autotest.errors import ResultsError
from autotest.results.batch import BATCH_BYTES, summarise
from autotest.results.figures import Figures, figures
from autotest.results.guest_latencies import parse_guest_latencies
from autotest.results.guests import GuestFigures
from autotest.results.histogram import Histogram, Summary, parse_histogram
from autotest.results.moongen import parse_moongen_output
from autotest.results.names import GUESTS, HISTOGRAM, OUTPUT, TRIAL, TrialName
from autotest.results.older import judge_older
from autotest.results.records import DATA_KINDS, FILE_KINDS, stored_trial
from autotest.results.signatures import Signature
from autotest.results.verdicts import Tolerances, Verdict

log = logging.getLogger(__name__)

Value = str | int | bool
Parameters = Mapping[str, Value]

_MANY: Final = 200  # trials: from here on other processes are worth their start of some milliseconds
_MOST_PROCESSES: Final = 8
_MOST_TASKS: Final = 256  # so that a task's number is one byte
_FIELDS: Final = tuple(field.name for field in fields(Figures))
_FIGURES: Final = attrgetter(*_FIELDS)
_GUESTS_AT: Final = _FIELDS.index("guests")
_GUEST_FIGURES: Final = attrgetter(*(field.name for field in fields(GuestFigures)))
_UNKNOWN: Final[Signature] = [0, 0, 65536, 0, 0]
_LEAST_READ, _MOST_READ = 2**14, 2**30  # bytes at once; the kernel gives no more than 2**31
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_KEPT_BYTES: Final = 32 * 2**20
_LARGEST: Final = 1e18
_MOST_GUESTS: Final = 10_000  # whatever a name says: nobody measured more
_GUEST_NAME = re.compile(r"guest([1-9][0-9]{0,8})?").fullmatch
_LINE = re.compile(r":([0-9]+): (.*)", re.DOTALL).fullmatch


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something in an output directory that is not used, or not as it is: which file, and what is wrong."""

    file: str
    message: str

    def __str__(self) -> str:
        return f"{self.file}: {self.message}"


class Source(NamedTuple):
    """A trial to be read.

    Attributes:
        files: the signatures of those that are there, by kind.
        unusable: those of its names under which there is something else than a file that can be opened.
    """

    name: TrialName
    parameters: Parameters
    files: Mapping[str, Signature]
    unusable: tuple[Complaint, ...] = ()

    @property
    def guests(self) -> int:
        """How many there are by its name; 1 also where the host itself is measured."""
        return min(int(self.parameters.get("guests", 1)), _MOST_GUESTS)

    def weights(self, guests: Iterable[int]) -> list[int]:
        """Those of these guests; none where all have the same."""
        weights = str(self.parameters.get("weights", "")).split(":")
        return [int(weights[number - 1]) for number in guests] if len(weights) > 1 else []


class Reading(NamedTuple):
    """What the files of a trial say; see :class:`~autotest.report.trials.Trial`."""

    verdict: Verdict
    reason: str = ""
    accepted: bool = False
    figures: Figures | None = None
    testbed: str = ""
    started: str = ""
    checksum: str = ""
    complaints: tuple[Complaint, ...] = ()

    def row(self) -> list[Any]:
        """As JSON takes it."""
        found = _FIGURES(self.figures) if self.figures else None
        if found and found[_GUESTS_AT]:
            found = (*found[:_GUESTS_AT], list(map(_GUEST_FIGURES, found[_GUESTS_AT])), *found[_GUESTS_AT + 1 :])
        complaints = [(complaint.file, complaint.message) for complaint in self.complaints]
        return [str(self.verdict), self.reason, self.accepted, found, self.testbed, self.started, self.checksum, complaints]

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Reading:
        """From what :meth:`row` gave, also after it went through JSON. ValueError or TypeError for anything else."""
        judged, reason, accepted, found, testbed, started, checksum, complaints = row
        if found and list in map(type, found):  # JSON has no tuples
            guests = [GuestFigures(*guest) for guest in found[_GUESTS_AT]]
            found = [tuple(value) if type(value) is list else value for value in found]
            found[_GUESTS_AT] = tuple(guests)
        measured = Figures(*found) if found else None
        complained = tuple(Complaint(file, message) for file, message in complaints)
        return cls(Verdict(judged), reason, accepted, measured, testbed, started, checksum, complained)


def read_trials(directory: Path, sources: Sequence[Source]) -> list[Reading]:
    """Read trials, in their order. ResultsError for one of a newer autotest; whatever else is wrong is complained of."""
    if len(sources) < _MANY or not _can_fork():
        return list(_read_all(directory, sources))
    processes = min(len(os.sched_getaffinity(0)), _MOST_PROCESSES)
    return list(_read_in_processes(directory, list(_batches(sources)), processes))


def _read_all(directory: Path, sources: Sequence[Source]) -> Iterator[Reading]:
    for batch in _batches(sources):
        yield from _read_batch(directory, batch)


def _can_fork() -> bool:
    """False where other threads may hold locks, which a fork copies without those threads; macOS has such ones of its own."""
    return sys.platform == "linux" and threading.active_count() == 1


def _batches(sources: Sequence[Source]) -> Iterator[list[Source]]:
    batch: list[Source] = []
    size = 0
    for source in sources:
        _, _, more, *_ = source.files.get(HISTOGRAM, _UNKNOWN)
        if batch and size + more > BATCH_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(source)
        size += more
    if batch:
        yield batch


# -- processes ---------------------------------------------------------------------------------------------


def _read_in_processes(directory: Path, batches: Sequence[list[Source]], processes: int) -> Iterator[Reading]:
    """Readings of all batches. What a process did not do, because it was ended or met an error, is done here."""
    size = -(-len(batches) // _MOST_TASKS)
    tasks = [[source for batch in batches[at : at + size] for source in batch] for at in range(0, len(batches), size)]
    done: dict[int, list[Reading]] = {}
    context = multiprocessing.get_context("fork")
    todo, numbers = os.pipe()
    os.write(numbers, bytes(range(len(tasks))))
    os.close(numbers)
    workers = []
    ends: list[Connection] = []
    try:
        for _ in range(processes):
            receiver, sender = context.Pipe(duplex=False)
            with sender:
                worker = context.Process(target=_work, args=(directory, tasks, todo, sender), daemon=True)
                try:
                    worker.start()
                except OSError as error:  # the user may have no more processes
                    log.debug("%s", error)
                    receiver.close()
                    break
            workers.append(worker)
            ends.append(receiver)
        while ends:
            for end in wait(ends):
                assert isinstance(end, Connection)
                try:
                    number, rows = end.recv()
                    done[number] = [Reading.from_row(row) for row in rows]
                except (EOFError, OSError):
                    ends.remove(end)
                    end.close()
    finally:
        os.close(todo)
        for worker in workers:
            worker.kill()
            worker.join()
    for number, task in enumerate(tasks):
        yield from done[number] if number in done else _read_all(directory, task)


def _work(directory: Path, tasks: Sequence[list[Source]], todo: int, sender: Connection) -> None:
    """In a process of its own: take numbers of tasks out of a pipe, each byte of which only one process gets."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # those are for the process that started this one
        signal.signal(number, signal.SIG_IGN)
    gc.disable()  # nothing here refers to itself, and the process does not last
    _keep_memory()
    with contextlib.suppress(OSError):  # it has ended
        while taken := os.read(todo, 1):
            try:
                sender.send((taken[0], [reading.row() for reading in _read_all(directory, tasks[taken[0]])]))
            except Exception as error:  # noqa: BLE001  # comes again where it can be told
                log.debug("%s", error)


def _keep_memory() -> None:
    """Let the C library keep what is freed: else each array of a batch is new memory, which the kernel fills with zeros first.

    That was 40 % of the time. Only in processes of our own: mallopt(3) is for the whole process.
    """
    with contextlib.suppress(OSError, AttributeError):  # a C library other than GNU's
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


# -- files -------------------------------------------------------------------------------------------------


class _Loaded(NamedTuple):
    """Content of the files that are there, by kind, and those that cannot be read."""

    contents: dict[str, bytes]
    unreadable: tuple[Complaint, ...]


def _read_batch(directory: Path, batch: Sequence[Source]) -> list[Reading]:
    folder = os.fspath(directory)
    loaded = [_load(folder, source) for source in batch]
    summaries = summarise([one.contents.get(HISTOGRAM, b"") for one in loaded])
    return [_judge(directory, source, one, summary) for source, one, summary in zip(batch, loaded, summaries, strict=True)]


def _load(folder: str, source: Source) -> _Loaded:
    """The JSON last, and also where there was none: the store puts one there before it touches the other files.

    So a trial that is committed meanwhile is not taken for one of the older tool.
    """
    contents: dict[str, bytes] = {}
    unreadable: list[Complaint] = []
    if source.unusable:
        return _Loaded(contents, source.unusable)
    for kind in (*FILE_KINDS, TRIAL):
        if kind == GUESTS and kind not in source.files and source.guests == 1:
            continue
        file = source.name.file(kind)
        _, _, size, *_ = source.files.get(kind, _UNKNOWN)
        try:
            contents[kind] = read_file(f"{folder}/{file}", size)
        except FileNotFoundError:
            pass
        except OSError as error:
            unreadable.append(Complaint(file, f"cannot be read: {error.strerror}"))
    return _Loaded(contents, tuple(unreadable))


def read_file(path: str, size: int) -> bytes:
    """The content of a file that probably has this size. Does not wait where there is a pipe by now."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        want = min(max(size + 1, _LEAST_READ), _MOST_READ)
        parts = [os.read(descriptor, want)]
        while len(parts[-1]) == want:  # less is the end of the file
            parts.append(os.read(descriptor, want))
        return b"".join(parts)
    finally:
        os.close(descriptor)


# -- judging -----------------------------------------------------------------------------------------------


def _judge(directory: Path, source: Source, loaded: _Loaded, summary: Summary | None) -> Reading:
    name, contents = source.name, loaded.contents
    if loaded.unreadable:  # any of them: without its JSON a trial would pass for one of the older tool
        return Reading(Verdict.INCOMPLETE, str(loaded.unreadable[0]), complaints=loaded.unreadable)
    raw = contents.pop(TRIAL, None)
    if raw is None:
        return _judge_older(source, contents, summary)
    stored = stored_trial(directory, name, raw, contents)
    record = stored.trial or {}
    found = None if stored.unacceptable else _recorded_figures(source, contents, summary, record)
    judged, problem = stored.verdict, stored.reason
    if judged.is_done and found and found.contradiction:  # format 1 did not look for it
        judged, problem, found = Verdict.INCOMPLETE, found.contradiction, None
    complaints = (Complaint(name.trial, problem),) if problem else ()
    testbed = record.get("testbed")
    return Reading(
        judged,
        problem or _text(record.get("reason")),
        stored.is_accepted,
        found,
        _text(testbed.get("name")) if isinstance(testbed, dict) else "",
        _text(record.get("started")),
        _checksum(contents),
        complaints,
    )


def _judge_older(source: Source, contents: Mapping[str, bytes], summary: Summary | None) -> Reading:
    """A trial without our JSON: it has the verdict that its figures give."""
    name = source.name
    missing = [kind for kind in DATA_KINDS if kind not in contents]
    if missing:
        file = next((name.file(kind) for kind in contents), name.trial)
        return _incomplete(file, f"no {' and no '.join(missing)} beside it")
    if not contents[OUTPUT]:
        return _incomplete(name.output, "the output is empty")
    latencies, problem = _latencies(name, contents, summary)
    if problem:
        return _incomplete(name.histogram, problem)
    asked = (float(source.parameters[key]) for key in ("rate", "runtime"))
    found, judgement = judge_older(contents[OUTPUT], latencies, *asked)
    if judgement.verdict is Verdict.INCOMPLETE:
        is_usable = found.complete and not found.contradiction
        return _incomplete(name.histogram if found.contradiction else name.output, judgement.reason, found if is_usable else None)
    return Reading(judgement.verdict, judgement.reason, figures=found, checksum=_checksum(contents))


def _incomplete(file: str, problem: str, found: Figures | None = None) -> Reading:
    return Reading(Verdict.INCOMPLETE, problem, figures=found, complaints=(Complaint(file, problem),))


def _latencies(name: TrialName, contents: Mapping[str, bytes], summary: Summary | None) -> tuple[Summary | Histogram | None, str]:
    """The summary or, where there is none, what is wrong with the file."""
    if summary is not None:
        return summary, ""
    try:
        return parse_histogram(contents.get(HISTOGRAM, b""), name.histogram), ""
    except ResultsError as error:
        text = str(error).removeprefix(name.histogram)
        line = _LINE(text)
        return None, f"line {line[1]} of the histogram: {line[2]}" if line else text.removeprefix(": ")


def _checksum(contents: Mapping[str, bytes]) -> str:
    """Of output and histogram; empty where one of them is. Against chance, not against forgers: 64 bits and both sizes."""
    if not all(contents.get(kind) for kind in DATA_KINDS):
        return ""
    return "-".join(f"{len(contents[kind]):x}.{zlib.crc32(contents[kind]):08x}" for kind in DATA_KINDS)


def _recorded_figures(
    source: Source, contents: Mapping[str, bytes], summary: Summary | None, record: Mapping[str, Any]
) -> Figures | None:
    """Figures made anew, with what only the record can know: for how long was sent, what the interface counted, tolerances,
    which guests were missing.
    """
    if not contents.get(OUTPUT):
        return None
    name = source.name
    is_empty = contents.get(HISTOGRAM) == b""  # nothing came back, which the record says, too
    latencies, problem = (Histogram.of({}), "") if is_empty else _latencies(name, contents, summary)
    measured = _numbers(record.get("figures"))
    interface = measured.get("interface_sent"), measured.get("interface_received")
    missing = _missing_guests(record)
    there = [number for number in range(1, source.guests + 1) if number not in missing]
    of_guests, guests_problem = _guest_latencies(name, contents)
    return figures(
        parse_moongen_output(contents[OUTPUT]),
        latencies,
        measured.get("seconds"),
        Tolerances.of(_numbers(record.get("settings"))),
        interface=(int(interface[0]), int(interface[1])) if interface[0] is not None and interface[1] is not None else None,
        unreadable=problem or guests_problem,
        guests=there,
        weights=source.weights(there),
        guest_latencies=of_guests,
    )


def _missing_guests(record: Mapping[str, Any]) -> set[int]:
    """The numbers of the guests that were not there; the first is called ``guest``."""
    missing = record.get("missing_guests")
    found = [_GUEST_NAME(str(name)) for name in missing] if isinstance(missing, dict) else []
    return {int(match[1] or 1) for match in found if match}


def _guest_latencies(name: TrialName, contents: Mapping[str, bytes]) -> tuple[dict[int, Histogram] | None, str]:
    """The guests' histograms, None where there are none; or what is wrong with the file."""
    if GUESTS not in contents:
        return None, ""
    try:
        return parse_guest_latencies(contents[GUESTS], name.file(GUESTS)), ""
    except ResultsError as error:
        return None, str(error)


def _text(value: object) -> str:
    """A text of a record as every encoding has it: JSON can hold halves of characters."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def _numbers(part: object) -> dict[str, float]:
    """The usual numbers in a part of a record, which anybody may have edited."""
    values = part if isinstance(part, dict) else {}
    return {key: value for key, value in values.items() if type(value) in (int, float) and abs(value) < _LARGEST}
