"""Signatures of files: what has to be the same for a file to count as unchanged since it was read.

Sizes and times alone can be kept over a change (``touch -d``, ``cp -p``, ``rsync -t``); the time of the last change of the inode
(ctime) is set by the kernel alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

#: Files changed less than this before they were read may change again within one tick of the file system's clock
#: (2 s on the coarsest in use): what was read then is not believed the next time.
SETTLED_NS: Final = 2_000_000_000

Signature = list[int]
"""Device, inode, size in bytes, times of the last change of content and inode in ns; a list, as JSON gives it back."""


def signature(found: os.stat_result) -> Signature:
    """The signature of a file that was just asked for."""
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def are_settled(signatures: Iterable[Signature], started_ns: int, margin_ns: int = SETTLED_NS) -> bool:
    """Whether files that were read from ``started_ns`` on (``time.time_ns()``) cannot have changed since without a sign of it.

    False also where a clock was set back: then they lie in the future.
    """
    latest = started_ns - margin_ns
    return all(modified < latest and changed < latest for _, _, _, modified, changed in signatures)
