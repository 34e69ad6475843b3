"""The rate of a machine's time stamp counter.

QEMU's TCG gives its guests the host's counter. ``microvm`` has no timer that Linux could compare it with, so the guest must
be told. The kernel knows the rate but tells it only in its boot messages, which may be gone: so it is measured. This
file runs on the host, which may be another machine, and so imports nothing but Python's own library.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import time
from collections.abc import Callable

# rdtsc; shl rdx, 32; or rax, rdx; ret
_READ_TSC = bytes.fromhex("0f31 48c1e220 4809d0 c3")


def tsc_khz(duration_s: float = 0.1) -> int:
    """Rate of the time stamp counter in kHz, right to about 1e-5. Raises OSError where there is none to be read."""
    if platform.machine() != "x86_64":
        raise OSError(f"only an x86-64 machine has a time stamp counter, this is {platform.machine()}")
    code = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(_READ_TSC)
    anchor = ctypes.c_char.from_buffer(code)
    read = ctypes.CFUNCTYPE(ctypes.c_uint64)(ctypes.addressof(anchor))
    start_ticks, start_ns = _sample(read)
    time.sleep(duration_s)
    end_ticks, end_ns = _sample(read)
    del read, anchor  # the memory cannot be given back while something points into it
    code.close()
    return round((end_ticks - start_ticks) * 1_000_000 / (end_ns - start_ns))


def _sample(read: Callable[[], int]) -> tuple[int, float]:
    """Counter and time in ns of one moment: of several tries the one that was interrupted least."""
    best: tuple[int, float] = (0, 0.0)
    shortest: int | None = None
    for _ in range(20):
        before = time.monotonic_ns()
        ticks = read()
        after = time.monotonic_ns()
        if shortest is None or after - before < shortest:
            shortest = after - before
            best = (ticks, (before + after) / 2)
    return best


if __name__ == "__main__":
    print(tsc_khz())
