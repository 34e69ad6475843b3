"""The lock on the host: what stands in the way of its script there, and whatever the host answers."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from examples import examples
from hostile import FakeMachine, answers, json_values, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import AutotestError, TestbedError
from autotest.remote.local import LocalTransport
from autotest.remote.transport import Transport
from autotest.run.journal import Journal
from autotest.run.lock import TestbedLock

KEYS = ["id", "pid", "start", "user", "hostname", "machine", "machine_boot", "command", "since"]


def a_lock(transport: Transport, host: HostConfig | None = None) -> TestbedLock:
    testbed = Testbed(Path("t"), host or HostConfig(fqdn="far"), GuestConfig(fqdn="g"), LoadGenConfig(fqdn="l"))
    servers: Any = SimpleNamespace(testbed=testbed, host=SimpleNamespace(transport=transport), journal=Journal(str))
    return TestbedLock(servers)


record = st.one_of(
    json_values, st.dictionaries(st.sampled_from(KEYS), st.one_of(json_values, st.integers(-2, 2), texts), max_size=9)
)
answer_json = st.dictionaries(
    st.sampled_from(["held", "replaced"]), st.one_of(record, st.lists(record, max_size=2)), max_size=2
).map(json.dumps)


@settings(max_examples=examples(200))
@given(st.one_of(answers, json_values.map(json.dumps), answer_json))
def test_whatever_the_host_answers_the_testbed_is_held_or_there_is_an_error_of_ours(answer: str) -> None:
    try:
        with a_lock(FakeMachine(lambda command: answer)).held():
            pass
    except AutotestError as error:
        assert str(error)


@pytest.mark.parametrize("who", [{"pid": 1}, [], 5, "x", {"pid": "1", "start": None}, {"pid": 2, "start": 2, "user": ["x"]}])
def test_a_holder_of_whom_too_little_is_known_is_a_damaged_record(who: object) -> None:
    machine = FakeMachine(lambda command: json.dumps({"held": who or True}))
    with pytest.raises(TestbedError, match="record of who holds the testbed is damaged"):
        with a_lock(machine).held():
            pass


@pytest.mark.default
@pytest.mark.parametrize(("name", "bridge"), [("$(touch pwned)", "'; touch pwned\n"), ("../../x", "-rf")])
def test_hostile_names_are_held_and_given_back_and_a_module_in_the_way_is_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, bridge: str
) -> None:
    monkeypatch.setattr("autotest.run.lock._FOLDER", str(tmp_path / "held"))
    monkeypatch.chdir(tmp_path)
    for module in ("json", "fcntl", "typing"):  # what the script on the host imports
        (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')\n")
    lock = a_lock(LocalTransport("host"), HostConfig(fqdn="localhost", test_iface=name, admin_bridge=bridge))
    with lock.held():
        there = {path.name for path in (tmp_path / "held").iterdir()}
        names = {f"{thing.encode().hex()}.held" for thing in ("tmux socket autotest", f"interface {name}", f"bridge {bridge}")}
        assert there == names | {"guard"}
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["guard"]
    assert not (tmp_path / "pwned").exists()
