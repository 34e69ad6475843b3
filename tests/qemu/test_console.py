"""What the console of a guest says about its death."""

from autotest.qemu.console import panic

_LONG_TRACE = "\n".join(f"[    2.28{n:04}]  some_function+0x{n:x}/0x100" for n in range(60))


def test_the_reason_of_a_panic_is_found_before_a_trace_of_any_length() -> None:
    reason = "Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(254,0)"
    assert panic(f"booting\n[    2.287000] {reason}\r\n{_LONG_TRACE}\n[    3.0] Kernel Offset: disabled\n") == reason


def test_a_guest_that_just_ended_did_not_panic() -> None:
    assert panic("[    0.1] Command line: panic=-1\n[    9.0] reboot: Power down\n") is None
