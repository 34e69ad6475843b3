"""Load latency of several guests: its stages, and who is sent what when some guests are not there."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autotest.config.guests import nth_guest
from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import ConnectError, QemuError, TestbedError
from autotest.measurements import load_latency
from autotest.measurements.load_latency import KIND, STAGES
from autotest.plan.parameters import Case, Section
from autotest.run.observer import Observer
from autotest.servers.testbed import Servers
from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.moongen import ProgramEnd

NAMES = tuple(parameter.name for parameter in KIND.parameters)
MAC = "52:54:00:fa:00:6"
SETTINGS = {setting.name: setting.default for setting in KIND.settings}
TESTBED = Testbed(
    Path("t"), HostConfig(fqdn="h", test_iface="nic", test_iface_mac="52:54:00:aa:00:01"),
    GuestConfig(fqdn="vm", test_iface_mac=f"{MAC}0"), LoadGenConfig(fqdn="l"),
)  # fmt: skip


def case(**more: Any) -> Case:
    values = {
        "machine": "pcvm", "interface": "bridge", "qemu": ("q", ""), "vhost": False, "ioregionfd": False, "queues": None,
        "rx_queue_size": None, "tx_queue_size": None, "guests": 1, "reflector": "xdp", "weights": "even", "rate": 10, "size": 60,
        "runtime": 5,
    } | more  # fmt: skip
    return Case((*NAMES, "repetition"), (*(values[name] for name in NAMES), 0))


HOST = {"machine": "host", "qemu": None, "vhost": None, "ioregionfd": None, "guests": None, "weights": None}


class FakeLoadGen:
    """Keeps what it was told; each run wrote no file and said nothing of frames."""

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []

    def run_load(self, program: str, arguments: Sequence[str], **how: Any) -> ProgramEnd:
        self.runs.append({"arguments": list(arguments), **how})
        return ProgramEnd(0, "", 5.0)


class FakeGuests:
    """Guests of which those with these numbers are there."""

    def __init__(self, *numbers: int, missing: Mapping[str, str] = {}) -> None:
        self.present = [SimpleNamespace(number=number, testbed=nth_guest(TESTBED, number)) for number in numbers]
        self.missing = dict(missing)
        self.calls: list[object] = []

    def change(self, count: int) -> bool:
        self.calls.append(("change", count))
        return True

    def check(self) -> None:
        self.calls.append("check")

    def end_broken(self) -> None:
        self.calls.append("end")

    def mend(self) -> None:
        self.calls.append("mend")


def servers(guests: FakeGuests) -> Any:
    return SimpleNamespace(testbed=TESTBED, host=SimpleNamespace(guests=guests), loadgen=FakeLoadGen())


def measured(folder: Path, guests: FakeGuests, planned: Case, **settings: Any) -> tuple[list[dict[str, Any]], Mapping[str, Any]]:
    """What the load generator was told, and the record of the trial."""
    section = Section("s", {}, SETTINGS | {"cooldown": 0, "warmup": 0} | settings)
    found = servers(guests)
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(load_latency, "_breakdown", lambda *_: "")
        trial = load_latency.measure(cast(Servers, found), planned, section, folder, Observer())
    return found.loadgen.runs, trial.record


# -- stages -------------------------------------------------------------------------------------------------


def test_each_stage_stands_at_its_parameter_and_they_follow_the_order_of_the_tree() -> None:
    parameters = [stage.parameter for stage in STAGES]
    assert [(stage.name, stage.parameter) for stage in STAGES] == [
        ("load generator", "machine"), ("admin network", "machine"), ("test network", "interface"), ("guest", "guests"),
        ("reflector", "reflector"),
    ]  # fmt: skip
    assert parameters == sorted(parameters, key=NAMES.index)


def test_what_stands_behind_the_reflector_changes_no_set_up() -> None:
    behind = NAMES[NAMES.index("reflector") + 1 :]
    assert behind == ("weights", "rate", "size", "runtime") and not {stage.parameter for stage in STAGES} & set(behind)


def test_only_guests_can_be_changed_and_mended() -> None:
    assert [stage.name for stage in STAGES if stage.change] == [stage.name for stage in STAGES if stage.mend] == ["guest"]
    assert NAMES[NAMES.index("guests") - 1] == "tx_queue_size", "all that a guest is started with stands before their number"


def test_the_stage_of_the_guests_asks_them() -> None:
    (stage,) = [stage for stage in STAGES if stage.name == "guest"]
    assert stage.check and stage.end and stage.change and stage.mend
    guests = FakeGuests(1)
    context = cast(Servers, servers(guests))
    assert stage.change(context, case(guests=1), case(guests=4)) is True
    for step in (stage.check, stage.end, stage.mend):
        step(context, case(guests=4))
    assert guests.calls == [("change", 4), "check", "end", "mend"]


def test_where_the_host_itself_reflects_no_guest_is_asked() -> None:
    (stage,) = [stage for stage in STAGES if stage.name == "guest"]
    assert stage.check and stage.end and stage.change and stage.mend
    guests = FakeGuests()
    context = cast(Servers, servers(guests))
    assert stage.change(context, case(**HOST), case(**HOST)) is False
    for step in (stage.check, stage.end, stage.mend):
        step(context, case(**HOST))
    with stage.enter(context, case(**HOST)):
        pass
    assert guests.calls == []


# -- reflectors ---------------------------------------------------------------------------------------------


class FakeReflector:
    """Reflects on guests, of which some fail."""

    needs_programs = False

    def __init__(self, fails: Mapping[str, Exception] = {}) -> None:
        self.fails = fails
        self.up_on: list[tuple[str, str]] = []

    def up(self, dut: Any, iface: str) -> None:
        self.up_on.append((dut.name, iface))
        if dut.name in self.fails:
            raise self.fails[dut.name]

    check = up


def reflected(monkeypatch: pytest.MonkeyPatch, reflector: FakeReflector, *numbers: int) -> Servers:
    monkeypatch.setitem(load_latency.REFLECTOR_KINDS, "xdp", cast(Any, reflector))
    found = Servers(TESTBED)
    for number in range(1, 5):
        found.host.machine(number).guest.nic = f"eth{number}"
    guests = found.host.guests
    guests._count, guests.missing = 4, {f"guest{n}" if n > 1 else "guest": "no login" for n in range(1, 5) if n not in numbers}
    return found


def test_each_guest_that_is_there_reflects_on_its_own_interface(monkeypatch: pytest.MonkeyPatch) -> None:
    reflector = FakeReflector()
    context = reflected(monkeypatch, reflector, 1, 3, 4)
    (stage,) = [stage for stage in STAGES if stage.name == "reflector"]
    with stage.enter(context, case(guests=4)):
        assert sorted(reflector.up_on) == [("guest", "eth1"), ("guest3", "eth3"), ("guest4", "eth4")]
    assert stage.check
    stage.check(context, case(guests=4))
    assert sorted(reflector.up_on[3:]) == sorted(reflector.up_on[:3])


def test_the_reflectors_of_all_guests_start_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    reflector, together = FakeReflector(), threading.Barrier(3)
    context = reflected(monkeypatch, reflector, 1, 2, 3)

    def up(dut: Any, iface: str) -> None:
        together.wait(20)  # for ever, were they started one by one

    monkeypatch.setattr(reflector, "up", up)
    (stage,) = [stage for stage in STAGES if stage.name == "reflector"]
    with stage.enter(context, case(guests=4)):
        assert not together.broken


def test_one_guest_that_does_not_reflect_fails_the_stage_and_what_was_set_up_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    reflector = FakeReflector({"guest3": TestbedError("guest3: the XDP reflector does not load on eth3")})
    context = reflected(monkeypatch, reflector, 1, 2, 3, 4)
    undone: list[str] = []
    context.journal._undo = lambda change: undone.append(change.server)  # type: ignore[assignment, func-returns-value]
    up = reflector.up

    def noted(dut: Any, iface: str) -> None:
        dut.journal.note(dut.name, "xdp", details={"name": iface})
        up(dut, iface)

    monkeypatch.setattr(reflector, "up", noted)
    (stage,) = [stage for stage in STAGES if stage.name == "reflector"]
    with pytest.raises(TestbedError, match="^guest3: the XDP reflector does not load on eth3$"):
        with stage.enter(context, case(guests=4)):
            raise AssertionError("it was entered")
    assert sorted(undone) == sorted({name for name, _ in reflector.up_on}) and context.journal.standing == ()


# -- who is sent what ---------------------------------------------------------------------------------------


def test_the_load_goes_to_all_guests_of_the_case_and_to_nobody_else(tmp_path: Path) -> None:
    (run,), record = measured(tmp_path, FakeGuests(1, 2, 3, 4), case(guests=4))
    assert run["arguments"][:3] == [f"{MAC}0", "--count", "4"] and "--weights" not in run["arguments"]
    assert set(run["fetch"]) == {"histogram", "guests"} and "missing_guests" not in record


def test_the_load_for_one_guest_is_told_as_it_always_was(tmp_path: Path) -> None:
    (run,), _ = measured(tmp_path, FakeGuests(1), case())
    assert run["arguments"] == [f"{MAC}0", "--rate", "10", "--time", "5", "--file", "{histogram}", "--size", "60"]
    assert set(run["fetch"]) == {"histogram"}


def test_the_load_for_the_host_goes_to_its_nic(tmp_path: Path) -> None:
    (run,), _ = measured(tmp_path, FakeGuests(), case(**HOST))
    assert run["arguments"][0] == "52:54:00:aa:00:01" and set(run["fetch"]) == {"histogram"}


def test_guests_that_are_missing_are_sent_nothing_and_the_others_have_their_own_shares(tmp_path: Path) -> None:
    missing = {"guest2": "no login"}
    (run,), record = measured(tmp_path, FakeGuests(1, 3, 4, missing=missing), case(guests=4, weights="5:4:3:2"))
    assert run["arguments"][0] == f"{MAC}0,{MAC}2,{MAC}3"
    assert run["arguments"][run["arguments"].index("--weights") + 1] == "5:3:2"
    assert record["missing_guests"] == missing


def test_where_one_guest_of_several_is_left_it_gets_all_of_the_load(tmp_path: Path) -> None:
    missing = {"guest": "no login"}
    (run,), record = measured(tmp_path, FakeGuests(2, missing=missing), case(guests=2, weights="3:1"))
    assert run["arguments"][0] == f"{MAC}1" and "--weights" not in run["arguments"] and set(run["fetch"]) == {"histogram"}
    assert record["missing_guests"] == missing


@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (1, 2), (1, 3), (2, 3), (3, 4)])
def test_each_guest_has_the_sizes_of_its_number_whoever_else_is_missing(tmp_path: Path, numbers: tuple[int, ...]) -> None:
    sizes = FrameSizes("60~1514", (((60, 1),), ((1514, 1),)))
    (run,), _ = measured(tmp_path, FakeGuests(*numbers), case(guests=4, size=sizes))
    told = run["arguments"][run["arguments"].index("--size") + 1]
    cycle = (run["give"]["sizes"] if told == "@{sizes}" else told).split("~")
    of_places = [cycle[place % len(cycle)].partition(":")[0] for place in range(len(numbers))]
    assert of_places == ["60" if number % 2 else "1514" for number in numbers]


@pytest.mark.parametrize("guests", [1, 3])
def test_the_warm_up_goes_to_the_same_guests_with_the_least_frames_and_leaves_all_its_files_beside_the_trials(
    tmp_path: Path, guests: int
) -> None:
    planned = case(guests=guests, size=1514, rate=1000)
    (warmup, run), _ = measured(tmp_path, FakeGuests(*range(1, guests + 1)), planned, warmup=2, threads=3)
    told = dict(zip(warmup["arguments"][:-1], warmup["arguments"][1:], strict=True))
    assert (told["--rate"], told["--size"], told["--time"], told["--threads"]) == ("20", "60", "2", "3")
    assert warmup["arguments"][:3] == run["arguments"][:3] or guests == 1
    for each in (warmup, run):
        files = {argument.strip("{}") for argument in each["arguments"] if argument.startswith("{")}
        assert files == set(each["fetch"])
    assert not set(warmup["fetch"].values()) & set(run["fetch"].values())


# -- what broke ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (QemuError("host: guest3: QEMU ended with exit code 1:\nlast words"), "host: guest3: QEMU ended with exit code 1"),
        (ConnectError("host cannot be reached"), ""),
        (None, ""),
    ],
)
def test_a_guest_that_died_in_the_trial_is_named_and_what_cannot_be_asked_breaks_none(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, expected: str
) -> None:
    looked: list[int] = []

    def require_running(number: int) -> None:
        looked.append(number)
        if number == 3 and error:
            raise error

    guests = FakeGuests(1, 3)
    for machine in guests.present:
        machine.require_running = lambda number=machine.number: require_running(number)
    for check in ("_check_test_network", "_check_reflectors"):
        monkeypatch.setattr(load_latency, check, lambda *_: None)
    assert load_latency._breakdown(cast(Servers, servers(guests)), case(guests=3)) == expected
    assert looked == [1, 3]
