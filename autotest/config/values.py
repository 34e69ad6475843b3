"""From the text of a configuration value to a typed value.

Each function takes the text and returns the value; it raises ValueError with a message that says what
would be right. A value is data: none of them can become an option or a command, because names that
begin with a dash or hold white space or control characters are refused here.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath

MAX_IFACE_NAME = 15  # IFNAMSIZ of the kernel, less the closing zero byte

_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_PCI_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})\.([0-7])")
_TRUE = {"1", "yes", "true", "on"}
_FALSE = {"0", "no", "false", "off"}


def text(value: str) -> str:
    """Any printable text on one line."""
    if any(not char.isprintable() for char in value):
        raise ValueError(f"{value!r} holds a control character or a line break")
    return value


def words(value: str) -> str:
    """Words that may go over several lines, as one line."""
    return text(" ".join(value.split()))


def word(value: str) -> str:
    """One word that cannot be taken for an option: printable, no white space, no leading dash."""
    text(value)
    if not value or value.startswith("-") or any(char.isspace() for char in value):
        raise ValueError(f"{value!r} is not a name: expected one word without a leading dash")
    return value


def iface(value: str) -> str:
    """The name of a network interface as the kernel allows it."""
    word(value)
    if len(value) > MAX_IFACE_NAME:
        raise ValueError(f"{value!r} has {len(value)} characters: an interface name has at most {MAX_IFACE_NAME}")
    if "/" in value or ":" in value or value in (".", ".."):
        raise ValueError(f"{value!r} is not an interface name: no slash or colon allowed")
    return value


def mac(value: str) -> str:
    """A unicast MAC address, in lower case."""
    if not _MAC.fullmatch(value):
        raise ValueError(f"{value!r} is not a MAC address: expected six pairs like 52:54:00:fa:00:60")
    if int(value[:2], 16) & 1:
        raise ValueError(f"{value!r} is a group address: the first byte of an interface's MAC must be even")
    if set(value) <= {"0", ":"}:
        raise ValueError(f"{value!r} is no usable MAC address")
    return value.lower()


def pci_address(value: str) -> str:
    """A PCI address with domain, in lower case."""
    match = _PCI_ADDRESS.fullmatch(value)
    if not match:
        raise ValueError(f"{value!r} is not a PCI address: expected one like 0000:51:00.0")
    domain, bus, device, function = match.groups()
    return f"{domain or '0000'}:{bus}:{device}.{function}".lower()


def ip_net(value: str) -> str:
    """An address with its prefix length, like 192.168.56.1/24."""
    if "/" not in value:
        raise ValueError(f"{value!r} has no prefix length: expected one like 192.168.56.1/24")
    try:
        return str(ipaddress.ip_interface(value))
    except ValueError as error:
        raise ValueError(f"{value!r} is not an address with prefix length: {error}") from None


def path(value: str) -> str:
    """A path on one of the machines; text, because that machine may be another one."""
    text(value)
    if not value or value.startswith("-"):
        raise ValueError(f"{value!r} is not a path")
    return str(PurePosixPath(value))


def boolean(value: str) -> bool:
    """yes/no, true/false, on/off, 1/0."""
    lowered = value.lower()
    if lowered in _TRUE:
        return True
    if lowered in _FALSE:
        return False
    raise ValueError(f"{value!r} is neither yes nor no: expected true or false")


def integer(low: int, high: int, unit: str = "") -> Callable[[str], int]:
    """A parser for a whole number between low and high, both included."""

    def parse(value: str) -> int:
        try:
            number = int(value)
            if not value.isascii() or "_" in value:  # Python's own notations
                raise ValueError(value)
        except ValueError:
            raise ValueError(f"{value!r} is not a whole number") from None
        if not low <= number <= high:
            raise ValueError(f"{number} is out of range: expected {low} to {high} {unit}".rstrip())
        return number

    return parse


def seconds_or_switch(switched_on: float) -> Callable[[str], float]:
    """A parser for seconds, where older files say true (``switched_on`` seconds) or false (0)."""

    def parse(value: str) -> float:
        if value.lower() in _TRUE - {"1"}:
            return switched_on
        if value.lower() in _FALSE - {"0"}:
            return 0.0
        try:
            number = float(value)
        except ValueError:
            raise ValueError(f"{value!r} is neither seconds nor true or false") from None
        if not 0 <= number <= 3600:
            raise ValueError(f"{value} s is out of range: expected 0 to 3600 s")
        return number

    return parse


def choice(options: Sequence[str]) -> Callable[[str], str]:
    """A parser that takes one of the options."""

    def parse(value: str) -> str:
        if value not in options:
            raise ValueError(f"unknown value {value!r}{nearest(value, options)}: expected {', '.join(options)}")
        return value

    return parse


def fs_devices(value: str) -> tuple[tuple[str, str], ...]:
    """``name:path,...``: host folders to offer to the guest, as (mount tag, path)."""
    pairs = []
    for part in value.split(","):
        name, colon, folder = part.strip().partition(":")
        if not colon:
            raise ValueError(f"{part.strip()!r} is not name:path")
        pairs.append((qemu_value(name), qemu_value(path(folder))))
    tags = [tag for tag, _ in pairs]
    if len(set(tags)) < len(tags):
        raise ValueError(f"{value!r} has a name twice")
    return tuple(pairs)


def qemu_value(value: str) -> str:
    """A word that goes into a QEMU option list; QEMU itself escapes a comma by doubling it."""
    return word(value)


def nearest(value: str, options: Sequence[str]) -> str:
    """'' or a suggestion like `` (did you mean 'bridge'?)``."""
    import difflib

    matches = difflib.get_close_matches(value, options, n=1)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
