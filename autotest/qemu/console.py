"""What a guest's console says about its death."""

from __future__ import annotations

import re

# https://docs.kernel.org/admin-guide/bug-hunting.html: the panic's own line comes before a trace of any length
_PANIC = re.compile(r"Kernel panic - not syncing: .*")


def panic(console: str) -> str | None:
    """The line with which the guest's kernel gave up, None where it did not."""
    found = _PANIC.search(console)
    return found[0].strip() if found else None


def around_panic(console: str, count: int) -> str:
    """That many lines around it: what led there stands before it, and a trace of any length behind."""
    lines = [line.rstrip() for line in console.splitlines()]
    at = next((number for number, line in enumerate(lines) if _PANIC.search(line)), len(lines))
    first = max(0, at - count // 2)
    return "\n".join(lines[first : first + count])
