"""What the console of a guest says about its death."""

from autotest.qemu.console import around_panic, panic

_LONG_TRACE = "\n".join(f"[    2.28{n:04}]  some_function+0x{n:x}/0x100" for n in range(60))


def test_the_reason_of_a_panic_is_found_before_a_trace_of_any_length() -> None:
    reason = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(254,0)"
    assert panic(f"booting\n[    2.287000] {reason}\r\n{_LONG_TRACE}\n[    3.0] Kernel Offset: disabled\n") == reason


def test_a_guest_that_just_ended_did_not_panic() -> None:
    assert panic("[    0.1] Command line: panic=-1\n[    9.0] reboot: Power down\n") is None


def test_around_a_panic_stands_what_led_there_and_the_beginning_of_its_trace() -> None:
    console = f"[    1.0] early\nautotest-init: there is no disk\r\n[    2.0] Kernel panic - not syncing: init\r\n{_LONG_TRACE}"
    lines = around_panic(console, 10).splitlines()
    assert lines[:4] == [*console.replace("\r", "").splitlines()[:3], _LONG_TRACE.splitlines()[0]] and len(lines) == 10
    assert around_panic("no panic\n" * 20, 4).splitlines() == ["no panic"] * 2
