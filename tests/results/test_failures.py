"""What ``failures.jsonl`` says, whoever cut it off, and what of it still is so."""

from __future__ import annotations

import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotest.errors import ResultsError
from autotest.measurements.load_latency import KIND
from autotest.plan.parameters import Case
from autotest.results.failures import (
    Measured,
    NotedFailure,
    parse_time,
    read_failures,
    still_open,
)
from autotest.results.names import TrialName
from autotest.results.store import FAILURES_FILE, ResultStore

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LATER = datetime(2026, 3, 1, 13, tzinfo=UTC)
TRIAL = TrialName("host_pnic_xdp_10kpps_60B_30s", 0)


def test_what_the_store_notes_is_read_back_the_latest_of_each(tmp_path: Path) -> None:
    store = ResultStore(tmp_path)
    for what, reason in ((TRIAL, "first"), ("guest (machine pcvm)", "no image"), (TRIAL, "second\nline")):
        store.note_failure(str(what), reason)
    guest, trial = read_failures(tmp_path)
    assert (guest.trial, guest.labels, guest.reason) == (None, {"machine pcvm"}, "no image")
    assert (trial.trial, trial.labels, trial.reason) == (TRIAL, frozenset(), "second\nline")
    assert trial.time and abs((datetime.now(UTC) - trial.time).total_seconds()) < 60


def test_no_file_is_no_failure_and_one_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    assert read_failures(tmp_path) == []
    (tmp_path / FAILURES_FILE).mkdir()
    with pytest.raises(ResultsError, match=FAILURES_FILE):
        read_failures(tmp_path)


def test_the_labels_are_those_of_the_set_up_as_the_runner_describes_it() -> None:
    names = tuple(parameter.name for parameter in KIND.parameters)
    case = Case(names, ("pcvm", "bridge", ("my_build", "/x"), True, False, 4, None, 512, "xdp"))
    described = ", ".join(KIND.labels(case))
    for what in (f"guest ({described})", f"all others with {described}"):
        assert NotedFailure(None, what, "").labels == set(KIND.labels(case))


@given(st.lists(st.binary(max_size=60) | st.sampled_from([b'{"what": "x"}', b'{"what": "guest (a b)", "time": "now"}', b"[]"])))
def test_no_content_is_too_strange_to_be_read(lines: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / FAILURES_FILE).write_bytes(b"\n".join(lines))
        for failure in read_failures(Path(folder)):
            assert failure.trial is None or not failure.labels
            json.dumps(failure.reason)


def test_a_line_that_was_cut_off_does_not_hide_the_others(tmp_path: Path) -> None:
    ResultStore(tmp_path).note_failure("a (b c)", "reason")
    with (tmp_path / FAILURES_FILE).open("a") as file:
        file.write('{"time": "2026-03-01T12:0')
    ResultStore(tmp_path).note_failure("d (e f)", "reason")
    assert [failure.what for failure in read_failures(tmp_path)] == ["a (b c)", "d (e f)"]


@pytest.mark.parametrize(
    ("measured", "is_open"),
    [
        ([], True),
        ([Measured(frozenset({"machine pcvm", "rate 10"}), LATER)], False),
        ([Measured(frozenset({"machine pcvm", "rate 10"}), NOON)], True),
        ([Measured(frozenset({"machine microvm"}), LATER)], True),
    ],
    ids=["nothing measured", "measured since", "measured before", "something else measured"],
)
def test_a_set_up_that_failed_stays_so_until_something_is_measured_on_it(measured: list[Measured], is_open: bool) -> None:
    failure = NotedFailure(NOON, "guest (machine pcvm)", "no image")
    assert (still_open([failure], lambda trial: False, measured) == [failure]) == is_open


GUEST = frozenset({"machine pcvm", "interface bridge", "qemu q", "vhost off", "ioregionfd off"})


@pytest.mark.parametrize(
    ("what", "labels", "concerned"),
    [
        (GUEST, GUEST | {"reflector xdp"}, True),
        (GUEST, GUEST | {"queues default", "reflector xdp"}, True),
        (GUEST, GUEST | {"queues 4", "reflector xdp"}, False),
        (GUEST | {"reflector xdp"}, GUEST | {"rx_queue_size 512", "reflector xdp"}, False),
        (GUEST | {"queues 4"}, GUEST | {"queues 4", "reflector xdp"}, True),
        (GUEST | {"queues 4"}, GUEST | {"queues 4", "tx_queue_size 256", "reflector xdp"}, False),
        (GUEST | {"queues 4"}, GUEST | {"reflector xdp"}, False),
        ({"machine pcvm", "interface bridge"}, GUEST | {"queues 4", "reflector xdp"}, True),
        ({"machine host", "interface pnic"}, {"machine host", "interface pnic", "reflector xdp"}, True),
    ],
)
def test_a_guest_whose_queues_are_left_to_qemu_is_another_set_up_than_one_with_them(
    what: frozenset[str], labels: frozenset[str], concerned: bool
) -> None:
    failure = NotedFailure(NOON, f"guest ({', '.join(sorted(what))})", "no image")
    assert failure.concerns(labels) == concerned
    assert (still_open([failure], lambda trial: False, [Measured(frozenset(labels), LATER)]) == []) == concerned


def test_a_trial_that_failed_stays_so_until_it_is_done() -> None:
    failure = NotedFailure(NOON, str(TRIAL), "no reply")
    assert still_open([failure], lambda trial: False, [Measured(frozenset(), LATER)]) == [failure]
    assert still_open([failure], lambda trial: trial == TRIAL, []) == []


@pytest.mark.parametrize("text", [None, 3, "", "yesterday", "2026-13-01"])
def test_a_time_that_is_none_is_none(text: object) -> None:
    assert parse_time(text) is None


def test_a_time_without_a_zone_is_taken_for_utc() -> None:
    assert parse_time("2026-03-01T12:00:00") == parse_time("2026-03-01T13:00:00+01:00") == NOON
