"""The table: the worst last, with remedies and what they block; readable at any width, whatever machines answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from autotest.preflight.preflight import Preflight
from autotest.preflight.requirement import (
    Finding,
    Requirement,
    Status,
    failed,
    passed,
    warned,
)
from autotest.preflight.survey import Survey
from autotest.preflight.text import Plan, checks, counts, effects_of, sentence, table

Labels = dict[str, list[str]]


@dataclass(frozen=True)
class Named(Requirement):
    name: str

    @property
    def subject(self) -> str:
        return self.name.partition("#")[0]

    def look(self, survey: Survey) -> Finding:
        raise NotImplementedError


SLOW, GONE, FINE = Named("host", "governor"), Named("host", "QEMU patched"), Named("loadgen", "NIC")
LABELS: Labels = {
    "a": ["machine pcvm", "interface bridge", "qemu default"], "b": ["machine pcvm", "interface bridge", "qemu patched"],
    "c": ["machine pcvm", "interface macvtap", "qemu patched"],
}  # fmt: skip
PLAN: Plan[str] = Plan({"a": 10, "b": 4, "c": 2}, lambda key: LABELS[key])


def preflight(**more: Finding) -> Preflight[str]:
    findings: dict[Requirement, Finding] = {
        GONE: failed("/opt/q: there is no such program", "install it"), SLOW: warned("powersave", "performance"),
        FINE: passed("eth0, 10000 Mbit/s"),
        Named("host", "device#1"): passed("e1000"), Named("host", "device#2"): passed("rtl8139"),
    }  # fmt: skip
    return Preflight(
        {**findings, **{Named("host", name): each for name, each in more.items()}}, {"a": (SLOW,), "b": (GONE,), "c": (GONE,)}
    )


def test_the_table_has_the_worst_last_and_one_row_for_what_passed_about_one_thing() -> None:
    assert list(table(preflight(), PLAN, 100, colours=False)) == [
        "pass  host     device        e1000, rtl8139",
        "pass  loadgen  NIC           eth0, 10000 Mbit/s",
        "warn  host     governor      powersave",
        "                             -> performance",
        "fail  host     QEMU patched  /opt/q: there is no such program",
        "                             -> install it",
        "                             blocks 6 of 16 trials: qemu patched",
    ]


@pytest.mark.parametrize("width", [80, 100, 120])
def test_no_line_is_longer_than_the_terminal_is_wide(width: int) -> None:
    long = failed("a word " * 60 + "\n" + "another " * 40, "a remedy " * 30)
    lines = list(table(preflight(long=long), PLAN, width, colours=False))
    assert max(map(len, lines)) <= width and len(lines) > 10


def test_what_machines_answer_gives_no_orders_to_the_terminal() -> None:
    text = "\n".join(table(preflight(x=failed("\x1b[2Jgone\x07", "\x1b]0;x\x07")), None, 100, colours=False))
    assert "\x1b" not in text and "\x07" not in text and "gone" in text


def test_only_the_status_has_a_colour() -> None:
    first, *_ = table(preflight(), PLAN, 100, colours=True)
    assert first.startswith("\x1b[32mpass\x1b[0m  host ") and first.count("\x1b") == 2


def test_what_is_blocked_is_told_by_what_it_has_in_common_and_the_others_have_not() -> None:
    assert effects_of(preflight(), PLAN) == {GONE: "blocks 6 of 16 trials: qemu patched"}
    assert PLAN.effect(["c"]) == "blocks 2 of 16 trials: interface macvtap, qemu patched"
    assert PLAN.effect(["a", "b"]) == "blocks 14 of 16 trials: interface bridge"
    assert PLAN.effect(["a", "b", "c"]) == "blocks all 16 trials"
    assert Plan({"a": 1}, lambda key: LABELS[key]).effect(["a"]) == "blocks all 1 trial"


def test_counts_and_sentences_are_for_the_log() -> None:
    found = preflight()
    assert counts(found) == "preflight: 3 checks passed, 1 warning, 1 failed"
    ((gone, finding),) = found.found(Status.FAIL)
    assert sentence(gone, finding, "blocks x") == "host: QEMU patched: /opt/q: there is no such program -> install it; blocks x"
    assert sentence(FINE, failed("ended:\nlast words", "")) == "loadgen: NIC: ended:\nlast words"


def test_a_build_server_gets_one_check_for_each_thing_and_warnings_pass() -> None:
    found = {check.name: check for check in checks(preflight(**{"device#3": failed("no e1000e", "another build")}))}
    assert {name: check.state for name, check in found.items()} == {
        "QEMU patched": "failed", "governor": "passed", "NIC": "passed", "device": "failed"
    }  # fmt: skip
    assert found["device"].message == "no e1000e; another build" and "e1000" in found["device"].details
    assert found["governor"].message == "warning: powersave; performance" and found["governor"].group == "host"
