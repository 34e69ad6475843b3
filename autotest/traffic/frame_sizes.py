"""The sizes of a load's frames: one size, a mix of several, or one of these for each guest in turn.

A size is in bytes without CRC. What ``sizes`` in ``tests.conf`` takes::

    60                    one size
    60:7 590:4 1514:1     a mix, SIZE:WEIGHT: of 12 frames 7, 4 and 1 have these sizes
    imix                  this very mix, the usual one of Internet traffic
    NAME:PATH             a measured distribution: a file with a line ``size,count`` for each size
    60 | imix             the guests take these in turn: guest 1 the first, guest 2 the second, guest 3 the first
"""

from __future__ import annotations

import hashlib
import math
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from autotest.config import values
from autotest.config.quantities import Quantity
from autotest.results.names import IMIX

MIN_FRAME_SIZE: Final = 60  # Ethernet's minimum
MAX_FRAME_SIZE: Final = 1514  # a frame of the usual MTU of 1500 bytes with its 14-byte header
MOST_FRAMES: Final = 65_536
"""After at most so many frames a mix has had each size in its exact share: the load program draws them like cards from a deck,
and has no larger one."""

Distribution = tuple[tuple[int, int], ...]
"""Sizes with their weights, ascending; the weights are whole numbers without a common divisor."""

_IMIX: Final[Distribution] = ((60, 7), (590, 4), (1514, 1))  # "simple IMIX": 64, 594 and 1518 bytes with CRC
_BETWEEN_ENTRIES: Final = "|"
_BETWEEN_SIZES = re.compile(r"[\s+]+")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9.-]*")
_LONGEST_NAME: Final = 40
_LONGEST_NAMES: Final = 100  # of all guests together, so that there is room for the rest of a result file's name
_MOST_BYTES: Final = 1 << 20  # of a file: 1,455 sizes with their counts take much less
_HASH_DIGITS: Final = 8
_TITLE = re.compile(r"""["']?[^\W\d_].*""")

SIZE: Final = Quantity(MIN_FRAME_SIZE, MAX_FRAME_SIZE, "bytes without CRC")

_size = SIZE.parse
_weight = values.integer(1, 10**9)
_count = values.integer(0, 10**18)


@dataclass(frozen=True)
class FrameSizes:
    """The frame sizes of all guests.

    Attributes:
        name: as result names have it: ``60``, ``imix``, ``60:7+590:4+1514:1``, for a file its name and the beginning of the
            SHA-256 of its distribution; with ``~`` between those of different guests.
        distributions: guest k has the k-th of them, after the last the first again.
    """

    name: str
    distributions: tuple[Distribution, ...] = field(hash=False)

    @staticmethod
    def of(value: int | FrameSizes) -> FrameSizes:
        """Those of a parameter's value."""
        return value if isinstance(value, FrameSizes) else FrameSizes(str(value), (((value, 1),),))

    def of_guest(self, guest: int) -> Distribution:
        """What is sent to a guest; guests are numbered from 1."""
        return self.distributions[(guest - 1) % len(self.distributions)]

    def of_guests(self, guests: Sequence[int]) -> FrameSizes:
        """Those of just these guests, in their order: of some of them others may be missing."""
        return self if len(self.distributions) == 1 else FrameSizes(self.name, tuple(map(self.of_guest, guests)))

    def mean(self, guest: int) -> float:
        """The mean size in bytes of the frames to a guest, which is numbered from 1."""
        sizes = self.of_guest(guest)
        return sum(size * weight for size, weight in sizes) / sum(weight for _, weight in sizes)

    @property
    def single(self) -> int | None:
        """The size of every frame; None where there are several."""
        sizes = {size for distribution in self.distributions for size, _ in distribution}
        return sizes.pop() if len(sizes) == 1 else None

    @property
    def largest(self) -> int:
        """The size of the largest frames."""
        return max(size for distribution in self.distributions for size, _ in distribution)

    @property
    def spec(self) -> str:
        """The value of the load program's ``--size``: ``60``, ``60:7+590:4+1514:1``, ``60~60:7+590:4``."""
        return "~".join(map(_written, self.distributions))

    def record(self) -> dict[str, Any]:
        """As JSON has it: the name, and for each distribution its sizes with their weights."""
        return {"name": self.name, "distributions": [[list(pair) for pair in sizes] for sizes in self.distributions]}

    def __str__(self) -> str:
        return self.name


def parse(text: str, folder: Path) -> int | FrameSizes:
    """One entry of ``sizes``; the paths in it count from the folder. What has one size only is a plain number.

    Raises ValueError with what would be right, also for a file that cannot be read or used.
    """
    entries = [_entry(" ".join(part.split()), folder) for part in text.split(_BETWEEN_ENTRIES)]
    names = [name for name, _ in entries]
    if len(entries) > 1 and len(set(names)) == 1:
        raise ValueError(f"{values.quoted(text)} gives all guests the same: write it once")
    if len(entries) == 1 and len(entries[0][1]) == 1:
        return entries[0][1][0][0]
    name = "~".join(names)
    if len(name) > _LONGEST_NAMES:
        raise ValueError(
            f"{values.quoted(text)} is too long for result names, {len(name)} characters: at most {_LONGEST_NAMES} fit; "
            "a mix in a file has a short name, as NAME:PATH"
        )
    return FrameSizes(name, tuple(sizes for _, sizes in entries))


def parse_file(text: str) -> Distribution:
    """The distribution in a file: a line ``size,count`` for each size, ``#`` before comments, perhaps a header line.

    Counts of more than :data:`MOST_FRAMES` frames in all are scaled down to that many, to the nearest whole numbers: no
    share is off by more than 1 in that many.

    Raises ValueError with the line.
    """
    counts: dict[int, int] = {}
    has_begun = False
    for number, line in enumerate(text.splitlines(), 1):
        fields = [part.strip() for part in line.partition("#")[0].split(",")]
        if fields == [""]:
            continue
        is_header = not has_begun and all(map(_TITLE.fullmatch, fields))
        has_begun = True
        if not is_header:
            try:
                size, count = _line(fields)
                if size in counts:
                    raise ValueError(f"size {size} is there twice")
            except ValueError as error:
                raise ValueError(f"line {number}: {error}") from None
            counts[size] = count
    if not counts:
        raise ValueError("holds no size: expected lines like 60,1000, of size and count")
    return _scaled(_normalised(counts))


def _entry(text: str, folder: Path) -> tuple[str, Distribution]:
    """What one guest gets: its name in result names and its distribution."""
    if not text:
        raise ValueError(f"nothing beside a {_BETWEEN_ENTRIES!r}: expected a size or a mix there")
    if text == IMIX:
        return IMIX, _IMIX
    if text[0].isalpha():
        return _measured(text, folder)
    parts = _BETWEEN_SIZES.split(text)
    if len(parts) == 1 and ":" not in text:
        sizes: Distribution = ((_size(text), 1),)
    else:
        sizes = _mix(parts)
    return _written(sizes), sizes


def _mix(parts: Iterable[str]) -> Distribution:
    weights: dict[int, int] = {}
    for part in parts:
        first, colon, second = part.partition(":")
        if not colon:
            raise ValueError(f"{values.quoted(part)} has no weight: expected SIZE:WEIGHT, like 60:7 590:4 1514:1")
        size = _size(first)
        if size in weights:
            raise ValueError(f"size {size} is there twice in one mix")
        weights[size] = _weight(second)
    sizes = _normalised(weights)
    total = sum(weight for _, weight in sizes)
    if total > MOST_FRAMES:
        most = f"at most {MOST_FRAMES} can without a common divisor; a file may have more, as NAME:PATH"
        raise ValueError(f"the weights sum up to {total}: {most}")
    return sizes


def _measured(text: str, folder: Path) -> tuple[str, Distribution]:
    """``NAME:PATH``; a changed file is another test case, so the name ends in a checksum."""
    name, colon, path = text.partition(":")
    if not colon:
        raise ValueError(
            f"unknown value {values.quoted(text)}{values.nearest(text, [IMIX])}: expected a size, "
            f"{IMIX}, a mix like 60:7 590:4 1514:1, or NAME:PATH of a file"
        )
    if not _NAME.fullmatch(name):
        raise ValueError(f"{values.quoted(name)} cannot be a mix's name: use letters, digits, . and -, beginning with a letter")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"{values.quoted(name)} is too long, {len(name)} characters: a mix's name has at most {_LONGEST_NAME}")
    file = folder / values.path_here(path.strip())
    try:
        sizes = parse_file(_read(file))
    except ValueError as error:
        raise ValueError(f"{name}: {file}: {error}") from None
    if len(sizes) == 1:
        return str(sizes[0][0]), sizes
    return f"{name}-{hashlib.sha256(_written(sizes).encode()).hexdigest()[:_HASH_DIGITS]}", sizes


def _read(file: Path) -> str:
    try:
        status = file.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ValueError("is no file")
        if status.st_size > _MOST_BYTES:
            raise ValueError(f"has {status.st_size} bytes: a distribution has at most {_MOST_BYTES}")
        return file.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ValueError("is no text: expected lines like 60,1000, of size and count") from None


def _line(fields: list[str]) -> tuple[int, int]:
    if len(fields) != 2:
        raise ValueError(f"{values.quoted(','.join(fields))} is not size,count, like 60,1000")
    return _size(fields[0]), _count(fields[1])


def _normalised(weights: Mapping[int, int]) -> Distribution:
    """The same shares in the smallest whole numbers, without sizes that never come."""
    divisor = math.gcd(*weights.values())
    if not divisor:
        raise ValueError("all counts are 0: at least one size must come")
    return tuple((size, weights[size] // divisor) for size in sorted(weights) if weights[size])


def _scaled(sizes: Distribution) -> Distribution:
    """With weights that sum up to at most MOST_FRAMES: the largest remainders are rounded up, so that the sum is kept."""
    total = sum(weight for _, weight in sizes)
    if total <= MOST_FRAMES:
        return sizes
    shares = {size: divmod(weight * MOST_FRAMES, total) for size, weight in sizes}
    left = MOST_FRAMES - sum(whole for whole, _ in shares.values())
    rounded_up = set(sorted(shares, key=lambda size: -shares[size][1])[:left])
    return _normalised({size: whole + (size in rounded_up) for size, (whole, _) in shares.items()})


def _written(sizes: Distribution) -> str:
    """``60`` or ``60:7+590:4+1514:1``."""
    return str(sizes[0][0]) if len(sizes) == 1 else "+".join(f"{size}:{weight}" for size, weight in sizes)
