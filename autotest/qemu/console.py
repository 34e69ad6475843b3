"""What a guest's console says about its death."""

from __future__ import annotations

import re

# https://docs.kernel.org/admin-guide/bug-hunting.html: the panic's own line comes before a trace of any length
_PANIC = re.compile(r"Kernel panic - not syncing: .*")


def panic(console: str) -> str | None:
    """The line with which the guest's kernel gave up, None where it did not."""
    found = _PANIC.search(console)
    return found[0].strip() if found else None
