"""Full sizes for figures that mean something, and tiny ones to see in seconds that a benchmark still works."""

from __future__ import annotations

import sys
from typing import Final, TypeVar

T = TypeVar("T")

TINY: Final = "--tiny"
"""The option with which a benchmark runs in seconds: its figures mean nothing, and no goal is judged."""


def full_or_tiny(full: T, tiny: T) -> T:
    """Return the size to use in this process."""
    return tiny if TINY in sys.argv else full
