"""The engine: each requirement is looked at once, what stands on a failed one is not, and only who needs it is blocked."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import ConnectError, TestbedError
from autotest.preflight.preflight import Preflight, look, require
from autotest.preflight.reached import Reached
from autotest.preflight.requirement import (
    Finding,
    Requirement,
    Status,
    failed,
    passed,
    warned,
)
from autotest.preflight.survey import Survey
from autotest.run.journal import Change, UndoFailed
from autotest.servers.testbed import Servers

pytestmark = pytest.mark.default

HERE = Testbed(Path("a.conf"), HostConfig(fqdn="localhost"), GuestConfig(fqdn="g.invalid"), LoadGenConfig(fqdn="localhost"))
GOOD, BAD = passed("fine"), failed("it is broken", "mend it")


@dataclass(frozen=True)
class Thing(Requirement):
    """Something that is found as the test says, and counts how often it was looked at."""

    name: str
    finding: Finding | Exception | Callable[[], Finding] = GOOD
    looked: list[str] = field(default_factory=list, compare=False)

    @property
    def subject(self) -> str:
        return self.name

    def look(self, survey: Survey) -> Finding:
        self.looked.append(self.name)
        if isinstance(self.finding, Exception):
            raise self.finding
        return self.finding if isinstance(self.finding, Finding) else self.finding()


def found(needs: dict[str, list[Requirement]], testbed: Testbed = HERE) -> Preflight[str]:
    with Servers(testbed) as servers:
        return look(servers, needs)


def of(preflight: Preflight[str], name: str) -> Finding | None:
    return next((finding for each, finding in preflight.findings.items() if each.subject == name), None)


def test_equal_requirements_of_many_set_ups_are_looked_at_once() -> None:
    looked: list[str] = []
    needs: dict[str, list[Requirement]] = {str(number): [Thing("host", "a", looked=looked)] for number in range(5)}
    assert found(needs).blocked() == {} and looked == ["a"]


def test_a_failed_requirement_blocks_the_set_ups_that_have_it_and_no_others() -> None:
    bad, good = Thing("host", "bad", BAD), Thing("host", "good")
    preflight = found(
        {"one": [good], "two": [bad, good], "three": [good, bad], "four": [Thing("host", "hm", warned("slow", "x"))]}
    )
    assert preflight.blocked() == {"two": (bad,), "three": (bad,)}
    assert preflight.words([bad]) == "host: bad: it is broken; mend it"


def test_what_stands_on_a_failed_requirement_is_not_looked_at_and_the_first_one_is_named() -> None:
    looked: list[str] = []
    bad = Thing("host", "bad", BAD)
    second = Thing("host", "second", looked=looked, after=(bad,))
    third = Thing("host", "third", looked=looked, after=(second,))
    preflight = found({"one": [third]})
    assert looked == [] and preflight.blocked() == {"one": (bad,)}
    assert of(preflight, "third") is None and of(preflight, "bad") == BAD


@pytest.mark.parametrize(
    ("error", "detail"),
    [(TestbedError("host: no such thing"), "no such thing"), (OSError(28, "No space left"), "No space left"),
     (ValueError("bug"), "could not be looked at: ValueError: bug")],
)  # fmt: skip
def test_an_exception_in_one_is_its_failure_and_not_the_end_of_the_others(error: Exception, detail: str) -> None:
    preflight = found({"one": [Thing("host", "bad", error)], "two": [Thing("host", "good")]})
    finding = of(preflight, "bad")
    assert finding and finding.status is Status.FAIL and detail in finding.detail
    assert list(preflight.blocked()) == ["one"] and of(preflight, "good") == GOOD


def test_what_a_look_could_not_undo_ends_the_preflight() -> None:
    left = UndoFailed([(Change(1, "host", "driver", {"name": "0000:01:00.0"}), TestbedError("not given back"))])
    looked: list[str] = []
    with pytest.raises(UndoFailed, match="driver 0000:01:00.0: not given back"):
        found({"one": [Thing("host", "bad", left), Thing("host", "next", looked=looked)]})
    assert looked == []


def test_of_a_server_that_is_not_reached_nothing_else_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    with Servers(HERE) as servers:

        def ping(timeout: float = 0) -> float:
            raise ConnectError("loadgen: nobody answers")

        monkeypatch.setattr(servers.loadgen, "ping", ping)
        needs: dict[str, list[Requirement]] = {
            "both": [Thing("host", "h", looked=looked), Thing("loadgen", "l", looked=looked)],
            "host": [Thing("host", "h", looked=looked)],
        }
        preflight = look(servers, needs)
    assert looked == ["h"]
    assert preflight.blocked() == {"both": (Reached("loadgen"),)}
    finding = preflight.findings[Reached("loadgen")]
    assert finding.detail == "nobody answers" and "ssh_config of [loadgen]" in finding.remedy


def test_a_server_on_which_nothing_can_be_run_as_root_is_of_no_use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with Servers(HERE) as servers:
        run = servers.host.run
        monkeypatch.setattr(
            servers.host, "run", lambda command, **options: run(["false"] if options.get("sudo") else command, check=False)
        )
        preflight = look(servers, {"one": [Thing("host", "h")]})
    assert preflight.blocked() == {"one": (Reached("host"),)}
    assert "nothing can be run as root" in preflight.findings[Reached("host")].detail


def test_what_spoils_numbers_is_looked_at_on_servers_in_use_and_once_on_each_machine() -> None:
    def servers_with_load(*names: str) -> list[str]:
        preflight = found({"one": [Thing(name, "x") for name in names]})
        return [each.server for each in preflight.findings if each.subject == "other load"]

    assert servers_with_load("loadgen") == ["loadgen"]
    assert servers_with_load("loadgen", "host") == ["host"]  # both are this machine


def test_require_names_all_that_failed_with_the_remedies_and_only_logs_warnings(caplog: pytest.LogCaptureFixture) -> None:
    hm = Thing("host", "hm", warned("slow", "faster"))
    with Servers(HERE) as servers:
        with caplog.at_level(logging.WARNING):
            require(servers, [hm, Thing("host", "fine")])
        assert "host: hm: slow; faster" in caplog.text
        with pytest.raises(TestbedError) as caught:
            require(servers, [Thing("host", "a", BAD), hm, Thing("host", "b", failed("gone", "bring it"))])
    assert str(caught.value) == "host: a: it is broken; mend it\nhost: b: gone; bring it"
