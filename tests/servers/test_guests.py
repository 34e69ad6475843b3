"""Several guests together, with machines that boot, die and end as a test wants it."""

from __future__ import annotations

import dataclasses
import logging
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hostile import FakeMachine

from autotest.config.guests import nth_guest
from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig, Testbed
from autotest.errors import AutotestError, QemuError, TestbedError
from autotest.interfaces import INTERFACE_KINDS
from autotest.remote.wait import wait_for
from autotest.run.journal import Change, Journal
from autotest.servers.guest import GuestSettings
from autotest.servers.guests import Guests
from autotest.servers.host import Host
from autotest.servers.virtual_machine import VirtualMachine

_LONG = 20.0  # seconds, which no test that passes waits


class FakeGuest(VirtualMachine):
    """A guest without QEMU, which writes down what happens to it."""

    def __init__(self, host: FakeHost, number: int) -> None:
        super().__init__(host, number, nth_guest(host.testbed, number))
        self._bench = host
        self.works = True

    def boot(self, settings: GuestSettings) -> None:
        self.host.note("guest", machine=self.name, name=self.name)
        self._bench.happened(f"+{self.number}")
        self._bench.alive.add(self.number)
        self.works = True
        if problem := self._bench.fail_to_boot.get(self.number):
            if callable(problem):
                problem()
            else:
                raise problem

    def check(self, settings: GuestSettings) -> None:
        if not self.works:
            raise QemuError(f"host: {self.name}: QEMU ended with exit code 1")

    def kill(self, hurry: bool = False) -> bool:
        was_there = self.number in self._bench.alive
        self._bench.alive.discard(self.number)
        if was_there:
            self._bench.happened(f"-{self.number}")
        return was_there


class FakeHost(Host):
    """A host of such guests, with two CPUs; ``alive`` are the numbers of the guests that run."""

    def __init__(self, **keys: object) -> None:
        config = HostConfig(fqdn="far", test_iface="nic", **{"root_disk_snapshot": True} | keys)  # type: ignore[arg-type]
        guest = GuestConfig(
            fqdn="10.9.0.2", vcpus=1, memory=32, admin_iface_mac="52:54:00:fa:00:5f", test_iface_mac="52:54:00:fa:00:60"
        )
        testbed = Testbed(Path("t"), config, guest, LoadGenConfig(fqdn="l"))
        super().__init__(testbed, FakeMachine(), Journal(self._undone))
        self.__dict__.update(boot="", cpus=(0, 1))
        self.events: list[str] = []
        self.alive: set[int] = set()
        self.fail_to_boot: dict[int, Exception | Callable[[], object]] = {}
        self._lock = threading.Lock()

    def happened(self, event: str) -> None:
        with self._lock:
            self.events.append(event)

    def machine(self, number: int) -> VirtualMachine:
        return self._machines.setdefault(number, FakeGuest(self, number))

    def fake(self, number: int) -> FakeGuest:
        found = self.machine(number)
        assert isinstance(found, FakeGuest)
        return found

    def _undone(self, change: Change) -> None:
        self.named_machine(change.details["name"]).kill()

    def running_machines(self) -> list[VirtualMachine]:
        return [self.machine(number) for number in sorted(self.alive)]


@pytest.fixture
def host() -> FakeHost:
    return FakeHost()


def settings(interface: str = "bridge") -> GuestSettings:
    return GuestSettings("pcvm", INTERFACE_KINDS[interface], "")


def numbers(guests: Guests) -> list[int]:
    return [machine.number for machine in guests.present]


def test_all_guests_boot_and_all_are_ended_with_the_context(host: FakeHost) -> None:
    with host.guests.running(settings(), 4):
        assert sorted(host.events) == ["+1", "+2", "+3", "+4"] and numbers(host.guests) == [1, 2, 3, 4]
        assert all(host.machine(number).one_of_several for number in range(1, 5))
    assert host.alive == set() and numbers(host.guests) == [] and host.journal.standing == ()


def test_one_guest_is_not_one_of_several(host: FakeHost) -> None:
    with host.guests.running(settings(), 1):
        assert not host.machine(1).one_of_several and host.events == ["+1"]


def test_guests_that_are_left_are_ended_first(host: FakeHost, caplog: pytest.LogCaptureFixture) -> None:
    host.alive = {1, 3}
    with host.guests.running(settings(), 1):
        assert host.events == ["-1", "-3", "+1"]
    assert [record.message for record in caplog.records if record.levelno == logging.WARNING] == [
        "host: ended the guest that was running", "host: ended the guest3 that was running",
    ]  # fmt: skip


@pytest.mark.parametrize(("cpus", "vcpus", "at_once"), [(8, 1, 8), (8, 4, 2), (8, 3, 2), (2, 4, 1)])
def test_no_more_guests_boot_at_once_than_the_host_has_cpus_for(cpus: int, vcpus: int, at_once: int) -> None:
    host = FakeHost()
    guest = dataclasses.replace(host.testbed.guest, vcpus=vcpus)
    host.testbed = dataclasses.replace(host.testbed, guest=guest)
    host.__dict__["cpus"] = tuple(range(cpus))
    lock, booting, most = threading.Lock(), 0, 0
    together = threading.Barrier(at_once)

    def boot() -> None:
        nonlocal booting, most
        with lock:
            booting += 1
            most = max(most, booting)
        together.wait(_LONG)
        with lock:
            booting -= 1

    host.fail_to_boot = dict.fromkeys(range(1, 2 * at_once + 1), boot)
    with host.guests.running(settings(), 2 * at_once):
        assert most == at_once


def test_one_guest_that_does_not_boot_fails_them_all_with_its_reason_and_all_are_ended(host: FakeHost) -> None:
    host.fail_to_boot[2] = QemuError("host: guest2: QEMU ended with exit code 1")
    with pytest.raises(QemuError, match="^host: guest2: QEMU ended with exit code 1$"), host.guests.running(settings(), 4):
        raise AssertionError("they run")
    assert host.alive == set() and host.journal.standing == () and numbers(host.guests) == []


def test_a_bug_while_a_guest_boots_is_not_taken_for_a_guest_that_does_not_boot(host: FakeHost) -> None:
    host.fail_to_boot[2] = ZeroDivisionError()
    host.guests.allow_missing = True
    with pytest.raises(ZeroDivisionError), host.guests.running(settings(), 3):
        raise AssertionError("they run")
    assert host.alive == set()


def test_ctrl_c_while_guests_boot_ends_all_after_the_last_boot_was_given_up(host: FakeHost) -> None:
    both = threading.Barrier(3)

    def boots_forever() -> None:
        both.wait(_LONG)
        try:
            wait_for(lambda: False, "a login", _LONG, 0.01)
        finally:
            host.happened("given up")

    def press() -> None:
        both.wait(_LONG)
        os.kill(os.getpid(), signal.SIGINT)

    host.fail_to_boot = dict.fromkeys(range(1, 5), boots_forever)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=press, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt), host.guests.running(settings(), 4):
            raise AssertionError("they run")
    finally:
        signal.signal(signal.SIGINT, before)
    assert host.events[2:4] == ["given up"] * 2 and sorted(host.events[4:]) == ["-1", "-2"]
    assert host.alive == set() and host.journal.standing == ()


# -- guests that may be missing -----------------------------------------------------------------------------


def test_where_it_is_allowed_a_guest_may_be_missing_and_is_ended_and_named(
    host: FakeHost, caplog: pytest.LogCaptureFixture
) -> None:
    host.guests.allow_missing = True
    host.fail_to_boot = {2: QemuError("host: guest2: no login\nits console says: panic"), 4: OSError("no space left")}
    with host.guests.running(settings(), 4):
        assert host.guests.missing == {"guest2": "host: guest2: no login", "guest4": "no space left"}
        assert numbers(host.guests) == [1, 3] and host.alive == {1, 3}
        assert "going on without guest2: host: guest2: no login\nits console says: panic" in caplog.text
    assert host.guests.missing == {} and host.alive == set()


def test_at_least_one_guest_must_be_there(host: FakeHost) -> None:
    host.guests.allow_missing = True
    host.fail_to_boot = dict.fromkeys((1, 2), QemuError("host: no login"))
    with pytest.raises(QemuError, match="no login"), host.guests.running(settings(), 2):
        raise AssertionError("they run")
    assert host.alive == set() and host.guests.missing == {}


def test_where_guests_are_missing_another_number_of_guests_is_made_anew(host: FakeHost) -> None:
    host.guests.allow_missing = True
    host.fail_to_boot = {2: QemuError("host: guest2: no login")}
    with host.guests.running(settings(), 2):
        assert host.guests.change(4) is False and host.guests.change(1) is False
        assert host.alive == {1}


# -- change -------------------------------------------------------------------------------------------------


def test_growing_boots_only_those_that_are_new(host: FakeHost) -> None:
    with host.guests.running(settings(), 1):
        assert host.guests.change(2) is True
        assert host.events == ["+1", "+2"] and numbers(host.guests) == [1, 2]
        assert host.machine(1).one_of_several
        assert host.guests.change(4) is True
        assert sorted(host.events[2:]) == ["+3", "+4"] and numbers(host.guests) == [1, 2, 3, 4]
    assert host.alive == set() and host.journal.standing == ()


def test_shrinking_ends_those_with_the_highest_numbers(host: FakeHost) -> None:
    with host.guests.running(settings(), 4):
        before = len(host.events)
        assert host.guests.change(2) is True
        assert host.events[before:] == ["-4", "-3"] and numbers(host.guests) == [1, 2]
        assert host.guests.change(1) is True
        assert host.events[before:] == ["-4", "-3", "-2"] and numbers(host.guests) == [1]
        assert not host.machine(1).one_of_several
        assert [change.details["name"] for change in host.journal.standing] == ["guest"]
    assert host.alive == set()


def test_an_interface_that_does_not_grow_is_made_anew_for_another_number_of_guests(host: FakeHost) -> None:
    with host.guests.running(settings("vhost-user"), 2):
        before = list(host.events)
        assert host.guests.change(4) is False and host.guests.change(1) is False
        assert host.events == before and numbers(host.guests) == [1, 2]


def test_a_disk_that_is_kept_is_one_guests_alone_so_between_one_and_several_all_is_made_anew() -> None:
    host = FakeHost(root_disk_snapshot=False)
    with host.guests.running(settings(), 1):
        assert host.guests.change(2) is False and host.alive == {1}
    with host.guests.running(settings(), 2):
        assert host.guests.change(1) is False and host.alive == {1, 2}
        assert host.guests.change(4) is True and host.guests.change(2) is True


def test_a_new_guest_that_does_not_boot_fails_the_change_and_all_are_ended_with_the_context(host: FakeHost) -> None:
    host.fail_to_boot[4] = QemuError("host: guest4: no login")
    with host.guests.running(settings(), 2):
        with pytest.raises(QemuError, match="guest4: no login"):
            host.guests.change(4)
    assert host.alive == set() and host.journal.standing == ()


# -- guests that break --------------------------------------------------------------------------------------


def test_guests_that_work_pass_the_check(host: FakeHost) -> None:
    with host.guests.running(settings(), 3):
        host.guests.check()


def test_the_check_names_the_guest_that_died(host: FakeHost) -> None:
    with host.guests.running(settings(), 3):
        host.fake(2).works = False
        with pytest.raises(QemuError, match="^host: guest2: QEMU ended with exit code 1$"):
            host.guests.check()


def test_the_check_names_all_guests_that_died(host: FakeHost) -> None:
    with host.guests.running(settings(), 3):
        for number in (1, 3):
            host.fake(number).works = False
        with pytest.raises(AutotestError) as raised:
            host.guests.check()
        assert str(raised.value).splitlines() == [
            "host: guest: QEMU ended with exit code 1", "host: guest3: QEMU ended with exit code 1",
        ]  # fmt: skip


def test_a_guest_that_is_missing_is_not_looked_after(host: FakeHost) -> None:
    host.guests.allow_missing = True
    host.fail_to_boot[2] = QemuError("host: guest2: no login")
    with host.guests.running(settings(), 2):
        host.fake(2).works = False
        host.guests.check()


def test_only_the_guest_that_died_is_ended_and_booted_again(host: FakeHost) -> None:
    with host.guests.running(settings(), 4):
        host.fake(3).works = False
        with pytest.raises(AutotestError):
            host.guests.check()
        before = len(host.events)
        host.guests.end_broken()
        assert host.events[before:] == ["-3"] and host.alive == {1, 2, 4}
        host.guests.mend()
        assert host.events[before:] == ["-3", "+3"] and numbers(host.guests) == [1, 2, 3, 4]
        host.guests.check()
    assert host.alive == set() and host.journal.standing == ()


def test_what_is_mended_is_not_booted_once_more(host: FakeHost) -> None:
    with host.guests.running(settings(), 2):
        host.fake(2).works = False
        with pytest.raises(AutotestError):
            host.guests.check()
        host.guests.end_broken()
        host.guests.mend()
        before = list(host.events)
        host.guests.mend()
        assert host.events == before


def test_a_guest_that_does_not_boot_again_fails_the_mending(host: FakeHost) -> None:
    with host.guests.running(settings(), 2):
        host.fake(2).works = False
        with pytest.raises(AutotestError):
            host.guests.check()
        host.guests.end_broken()
        host.fail_to_boot[2] = TestbedError("host: guest2: no memory")
        with pytest.raises(TestbedError, match="guest2: no memory"):
            host.guests.mend()
    assert host.alive == set()


def test_a_guest_that_does_not_boot_again_may_be_missing_where_that_is_allowed(host: FakeHost) -> None:
    host.guests.allow_missing = True
    with host.guests.running(settings(), 2):
        host.fake(2).works = False
        with pytest.raises(AutotestError):
            host.guests.check()
        host.guests.end_broken()
        host.fail_to_boot[2] = TestbedError("host: guest2: no memory")
        host.guests.mend()
        assert host.guests.missing == {"guest2": "host: guest2: no memory"} and host.alive == {1}
