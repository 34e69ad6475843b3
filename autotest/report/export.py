"""Export: a tidy table with one row per trial, or per trial and guest, as CSV, JSON or Parquet. docs/export.md describes its
columns.

What is not known is missing, never 0 and never an empty text: an empty field in CSV, ``null`` in JSON and Parquet.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pandas as pd

from autotest import __version__
from autotest.report.cases import GUESTS, group_cases
from autotest.report.metrics import GUEST_METRICS, METRICS
from autotest.report.parameters import (
    QEMU_CHOOSES,
    Parameters,
    Value,
    names_of,
    value_of,
)
from autotest.report.trials import Trial
from autotest.results.figures import Figures
from autotest.results.guests import GuestFigures
from autotest.results.names import TRIAL
from autotest.results.verdicts import Verdict

FORMATS: Final = ("csv", "json", "parquet")
METADATA_KEY: Final = b"autotest"
"""Of the Parquet schema's metadata: a JSON object with ``version``, ``sources``, ``select``, ``exclude``, ``section`` and ``accept``."""

_GUEST_COUNTS: Final = ("sent", "received", "lost", "sent_bytes", "received_bytes")
_COUNTS: Final = (*_GUEST_COUNTS, "dropout_seconds")
_LARGEST: Final = 2**63 - 1  # of Int64
_QUOTED = re.compile(r'[",\r\n]|^\s|\s$').search
_TEXT, _WHOLE, _NUMBER, _SWITCH = "string", "Int64", "Float64", "boolean"
#: Columns from the JSON of a trial, and the keys where they are: in the present format, then in the first one.
_RECORDED: Final = {
    "ended": (("ended",),),
    "autotest": (("versions", "autotest"),),
    "qemu_version": (("identity", "determines", "qemu.version"), ("guest", "qemu version")),
    "kernel_host": (("machines", "host", "kernel"), ("versions", "kernel of host")),
    "kernel_guest": (("machines", "guest", "kernel"),),
    "kernel_loadgen": (("machines", "loadgen", "kernel"), ("versions", "kernel of loadgen")),
    "identity": (("identity", "hash"),),
}


@dataclass(frozen=True)
class Request:
    """What was asked for; it goes with the table.

    Attributes:
        sources, select, exclude, section: as on the command line.
        accept: verdicts that count like ``valid``.
        per_guest: a row is a guest of a trial, with its figures.
    """

    sources: tuple[str, ...] = ()
    select: tuple[str, ...] = ()
    accept: frozenset[Verdict] = frozenset()
    per_guest: bool = False
    exclude: tuple[str, ...] = ()
    section: tuple[str, ...] = ()

    @property
    def accepted(self) -> str:
        """The accepted verdicts in one text, in their order; empty for none."""
        return ",".join(verdict for verdict in Verdict if verdict in self.accept)


def tidy(directories: Iterable[Sequence[Trial]], request: Request) -> pd.DataFrame:
    """The table: one row per trial, in the order of the trials, or one per trial and guest; what is given twice is there once.

    Args:
        directories: the trials of each output directory; repetitions of a case are looked for within one of them.

    Dtypes are the nullable ones: string, Int64, Float64 and boolean.
    """
    rows: dict[tuple[Path, str], list[dict[str, Any]]] = {}
    for trials in directories:
        used = _used(trials, request.accept)
        folders = {directory: directory.resolve() for directory in {trial.directory for trial in trials}}
        for trial in trials:
            key = folders[trial.directory], str(trial.name)
            if key not in rows:
                rows[key] = _rows(trial, key[1] in used, request)
    several = [row for of_trial in rows.values() for row in of_trial]
    names = names_of(sorted((row["parameters"] for row in several), key=len, reverse=True))
    flat = [row | {name: _said(row["parameters"], name) for name in names} for row in several]
    dtypes = _dtypes({name: _parameter_dtype(row[name] for row in flat) for name in names}, request)
    return pd.DataFrame(
        {name: pd.Series([_cell(row.get(name), dtype) for row in flat], dtype=dtype) for name, dtype in dtypes.items()}
    )


def _used(trials: Sequence[Trial], accept: Collection[Verdict]) -> set[str]:
    return {str(trial.name) for case in group_cases(trials, accept) for trial in case.used}


def _rows(trial: Trial, is_used: bool, request: Request) -> list[dict[str, Any]]:
    """One of the trial, or one of each of its guests; also a single one for a trial without figures."""
    row = {
        "directory": str(trial.directory),
        "infix": trial.name.infix,
        "repetition": trial.name.repetition,
        "parameters": trial.parameters,
        "verdict": str(trial.verdict),
        "reason": trial.reason,
        "accepted": trial.accepted,
        "accept": request.accepted,
        "used": is_used,
        "testbed": trial.testbed,
        "started": trial.started,
        **dict(_recorded(trial)),
    }
    found = trial.figures
    if not request.per_guest:
        return [row | _measured(found, METRICS, _COUNTS)]
    if found and found.guests:
        return [row | _measured(guest, GUEST_METRICS, ("guest", "mac", *_GUEST_COUNTS)) for guest in found.guests]
    alone = {"guest": 1} if value_of(trial.parameters, GUESTS) == 1 else {}  # the trial's figures are that guest's
    return [row | alone | _measured(found if alone else None, GUEST_METRICS, _GUEST_COUNTS)]


def _measured(found: Figures | GuestFigures | None, metrics: Iterable[str], others: Iterable[str]) -> dict[str, Any]:
    if found is None:
        return {}
    return {METRICS[name].column: METRICS[name].of(found) for name in metrics} | {name: getattr(found, name) for name in others}


def _said(parameters: Parameters, name: str) -> Value | None:
    """A parameter as the table has it: missing where it was left to QEMU, and the weights of a single guest."""
    if name in QEMU_CHOOSES or (name == "weights" and value_of(parameters, GUESTS) == 1):
        return parameters.get(name)
    return value_of(parameters, name)


def _dtypes(parameters: Mapping[str, str], request: Request) -> dict[str, str]:
    """Every column with its dtype, in order, from those of the parameters."""
    before = {"directory": _TEXT, "infix": _TEXT, "repetition": _WHOLE}
    if request.per_guest:
        before |= {"guest": _WHOLE, "mac": _TEXT}
    judged = {"verdict": _TEXT, "reason": _TEXT, "accepted": _SWITCH, "accept": _TEXT, "used": _SWITCH}
    metrics = {METRICS[name].column: _NUMBER for name in (GUEST_METRICS if request.per_guest else METRICS)}
    counts = dict.fromkeys(("samples", *(_GUEST_COUNTS if request.per_guest else _COUNTS)), _WHOLE)
    after = dict.fromkeys(("testbed", "started", *_RECORDED), _TEXT)
    return before | dict(parameters) | judged | metrics | counts | after


def _parameter_dtype(values: Iterable[object]) -> str:
    kinds = {type(value) for value in values if value is not None}
    return {frozenset({bool}): _SWITCH, frozenset({int}): _WHOLE}.get(frozenset(kinds), _TEXT)


def _cell(value: Any, dtype: str) -> Any:
    """A value as the table has it: texts without anything in them are missing, like what is not there or no number."""
    if value is None or value == "":
        return pd.NA
    if dtype == _TEXT:  # half of a surrogate pair, which JSON can hold, is in no encoding
        return str(value).encode("utf-8", "backslashreplace").decode()
    if (dtype == _WHOLE and abs(value) > _LARGEST) or (dtype == _NUMBER and not math.isfinite(value)):
        return pd.NA
    return value


def _recorded(trial: Trial) -> Iterator[tuple[str, str | None]]:
    """What the trial's JSON says of the software and the machines; nothing for a trial without one."""
    try:
        record = json.loads(trial.path(TRIAL).read_bytes())
    except (OSError, ValueError, RecursionError):
        return
    for name, places in _RECORDED.items():
        found = (_at(record, keys) for keys in places)
        yield name, next((value for value in found if isinstance(value, str)), None)


def _at(record: object, keys: Iterable[str]) -> object:
    for key in keys:
        record = record.get(key) if isinstance(record, Mapping) else None
    return record


# -- the formats -------------------------------------------------------------------------------------------


def render(table: pd.DataFrame, form: str, request: Request) -> bytes:
    """The table in one of :data:`FORMATS`, text as UTF-8. Every value is as it was, whatever is in it."""
    return {"csv": _csv, "json": _json, "parquet": _parquet}[form](table, request)


def _csv(table: pd.DataFrame, request: Request) -> bytes:
    """RFC 4180, but for the line ends, which are those of Unix; what is missing is an empty field."""
    columns = [[_field(value) for value in _plain(table[name])] for name in table.columns]
    lines = [",".join(table.columns), *map(",".join, zip(*columns, strict=True))]
    return ("\n".join(lines) + "\n").encode()


def _field(value: str | float | bool | None) -> str:
    """Python's csv module leaves a lone carriage return as it is, and what reads it takes it for the end of a line."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    text = str(value)
    return '"' + text.replace('"', '""') + '"' if _QUOTED(text) else text


def _json(table: pd.DataFrame, request: Request) -> bytes:
    """A list of objects, each on a line of its own."""
    rows = zip(*(_plain(table[name]) for name in table.columns), strict=True)
    lines = [json.dumps(dict(zip(table.columns, row, strict=True)), ensure_ascii=False, allow_nan=False) for row in rows]
    return ("[\n" + ",\n".join(lines) + "\n]\n").encode() if lines else b"[]\n"


def _plain(column: pd.Series) -> list[Any]:
    """Python's own values, None for what is missing."""
    return [None if value is pd.NA else value for value in column.tolist()]


def _parquet(table: pd.DataFrame, request: Request) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {
        "version": __version__,
        "sources": list(request.sources),
        "select": list(request.select),
        "exclude": list(request.exclude),
        "section": list(request.section),
        "accept": [str(verdict) for verdict in Verdict if verdict in request.accept],
    }
    arrow = pa.Table.from_pandas(table, preserve_index=False)
    arrow = arrow.replace_schema_metadata({**(arrow.schema.metadata or {}), METADATA_KEY: json.dumps(about).encode()})
    file = io.BytesIO()
    pq.write_table(arrow, file)
    return file.getvalue()
