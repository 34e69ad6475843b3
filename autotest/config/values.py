"""From the text of a configuration value to a typed value.

Each function takes the text and returns the value; it raises ValueError with a message that says what
would be right. A value is data: none of them can become an option or a command, because names that
begin with a dash or hold white space or control characters are refused here, and so is whatever a shell,
QEMU, tmux or the kernel would take for more than a name where they get to see it.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import TypeVar

Value = TypeVar("Value")

MAX_IFACE_NAME = 15  # bytes: IFNAMSIZ of the kernel, less the closing zero byte
MAX_PATH = 4095  # bytes: PATH_MAX, less the closing zero byte
MAX_PATH_PART = 255  # bytes: NAME_MAX
MAX_SOCKET_PATH = 107  # bytes that the path of a Unix socket may have
MAX_MACHINE = 255  # bytes of a machine's name, user@ included
MAX_PLAIN_NAME = 64  # so that it fits into the path of a socket, among folders
MAX_MOUNT_TAG = 31  # bytes that 9p has for the name of a folder
MAX_CPU = 8191  # the largest number that a kernel can be built for, NR_CPUS, less one

_SHOWN = 60  # characters of a value in a message
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+@-]*")
_MOUNT_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_MACHINE = re.compile(r"(?:\w[\w.+@\\-]*@)?(?:\w[\w.:%-]*|::[\w:.%]+|\[[\w:.%]+\](?::[0-9]+)?)")
_NO_IFACE_NAME = re.compile(r"[^!-~]|[/:%,]")
_MAC = re.compile(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}")
_PCI_ADDRESS = re.compile(r"(?:([0-9a-fA-F]{4}):)?([0-9a-fA-F]{2}):([01][0-9a-fA-F])\.([0-7])")
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)")
_LONGEST_NUMBER = 20  # digits; far beyond every range
_LAB_DIRECTORY = re.compile(r"(?:/run|/tmp|/var/tmp)(?:/[A-Za-z0-9_][A-Za-z0-9_.+@-]*)+")
_CPUS = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_SCHEDULING = re.compile(r"(other|batch|idle)|(fifo|rr):([0-9]{1,2})|nice:([+-]?[0-9]{1,2})")
TRUE = {"1", "yes", "true", "on"}
FALSE = {"0", "no", "false", "off"}


def quoted(value: str) -> str:
    """A text of the user's in a message: what cannot be printed is escaped, and what is too long is cut."""
    return repr(value) if len(value) <= _SHOWN else f"{value[:_SHOWN]!r}..."


def text(value: str) -> str:
    """Any printable text on one line."""
    if not value.isprintable():
        raise ValueError(f"{quoted(value)} holds a character that cannot be printed, or a line break")
    return value


def words(value: str) -> str:
    """Words that may go over several lines, as one line."""
    return text(" ".join(value.split()))


def word(value: str) -> str:
    """One word that cannot be taken for an option: printable, no white space, no leading dash."""
    text(value)
    if not value or value.startswith("-") or any(char.isspace() for char in value):
        raise ValueError(f"{quoted(value)} is not a name: expected one word without a leading dash")
    return value


def command_line(value: str) -> tuple[str, ...]:
    """A command and its arguments, in the quotes that a shell knows; no shell sees it.

    >>> command_line("mail -s 'autotest: done' me@example.org")
    ('mail', '-s', 'autotest: done', 'me@example.org')
    """
    import shlex

    try:
        found = shlex.split(text(value.replace("\n", " ")))
    except ValueError as error:
        raise ValueError(f"{quoted(value)} is not a command line: {str(error)[:1].lower()}{str(error)[1:]}") from None
    if not found or not found[0] or found[0].startswith("-"):
        raise ValueError(f"{quoted(value)} is not a command line: expected a program, and its arguments")
    return tuple(found)


def plain_name(value: str) -> str:
    """A name that is only a name wherever it gets to: in a path, in a file of ssh's, in a shell."""
    word(value)
    if not _PLAIN_NAME.fullmatch(value):
        expected = "letters, digits and _ . + @ -, beginning with a letter, digit or _"
        raise ValueError(f"{quoted(value)} is not a plain name: expected {expected}")
    return _short(value)


def _short(value: str, most: int = MAX_PLAIN_NAME) -> str:
    if len(value.encode()) > most:
        raise ValueError(f"{quoted(value)} has {len(value.encode())} bytes: at most {most} fit")
    return value


def machine(value: str) -> str:
    """A host name, an address or a name of the SSH configuration, with or without ``user@`` in front.

    Marks that a shell knows are refused, as ssh does: a ProxyCommand may hold ``%h``.
    """
    word(value)
    if not _MACHINE.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not a machine's name or address: expected one like user@host.example.org")
    return _short(value, MAX_MACHINE)


def tmux_socket(value: str) -> str:
    """The name of a tmux socket, or its absolute path; a folder has the name of its last part."""
    word(value)
    socket = PurePosixPath(value)
    if "/" not in value:
        return plain_name(value)
    if not socket.is_absolute() or ".." in socket.parts or not socket.name:
        raise ValueError(f"{quoted(value)} is not a tmux socket: expected a name, or an absolute path without ..")
    plain_name(socket.name)
    return _short(str(socket), MAX_SOCKET_PATH)


def iface(value: str) -> str:
    """The name of a network interface as the kernel allows it, and no pattern to it: it counts up a ``%d``."""
    word(value)
    mark = _NO_IFACE_NAME.search(value)
    if mark or value in (".", ".."):
        because = f"it must not hold {mark[0]!r}" if mark else "these are folders"
        raise ValueError(f"{quoted(value)} is not an interface name: {because}")
    if len(value) > MAX_IFACE_NAME:
        raise ValueError(f"{quoted(value)} has {len(value)} characters: an interface name has at most {MAX_IFACE_NAME}")
    return value


def mac(value: str) -> str:
    """A unicast MAC address, in lower case."""
    if not _MAC.fullmatch(value):
        raise ValueError(f"{quoted(value)} is not a MAC address: expected six pairs like 52:54:00:fa:00:60")
    if int(value[:2], 16) & 1:
        raise ValueError(f"{value!r} is a group (multicast) address: the first byte of an interface's MAC must be even")
    if set(value) <= {"0", ":"}:
        raise ValueError(f"{value!r} is no usable MAC address")
    return value.lower()


def pci_address(value: str) -> str:
    """A PCI address with domain, in lower case."""
    match = _PCI_ADDRESS.fullmatch(value)
    if not match:
        raise ValueError(f"{quoted(value)} is not a PCI address: expected one like 0000:51:00.0")
    domain, bus, device, function = match.groups()
    return f"{domain or '0000'}:{bus}:{device}.{function}".lower()


def pci_addresses(value: str) -> tuple[str, ...]:
    """PCI addresses, with commas between them."""
    return tuple(pci_address(part.strip()) for part in value.split(",") if part.strip())


def nics(value: str) -> tuple[tuple[str, str], ...]:
    """NICs, with commas between them, each as its PCI address and its MAC address."""
    found = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        words = part.split()
        if len(words) != 2:
            raise ValueError(
                f"{quoted(part)} is not a NIC: expected PCI address and MAC address, like 0000:51:00.1 52:54:00:12:34:57"
            )
        found.append((pci_address(words[0]), mac(words[1])))
    for kind, names in zip(("PCI address", "MAC address"), zip(*found, strict=True), strict=False):
        if twice := [name for number, name in enumerate(names) if name in names[:number]]:
            raise ValueError(f"{quoted(value)} has the {kind} {twice[0]} twice")
    return tuple(found)


def ip_net(value: str) -> str:
    """The address of an interface with its prefix length, like 192.168.56.1/24."""
    if "/" not in value:
        raise ValueError(f"{quoted(value)} has no prefix length: expected one like 192.168.56.1/24")
    try:
        address = ipaddress.ip_interface(value)
    except ValueError:
        raise ValueError(f"{quoted(value)} is not an address with prefix length: expected one like 192.168.56.1/24") from None
    if address.ip.is_multicast or address.ip.is_unspecified or "%" in value:  # %: a zone, which can be any text
        raise ValueError(f"{quoted(value)} cannot be an interface's address: expected one like 192.168.56.1/24")
    return str(address)


def path(value: str) -> str:
    """A path on one of the machines; text, because that machine may be another one."""
    text(value)
    if not value or value.startswith("-"):
        raise ValueError(f"{quoted(value)} is not a path")
    _short(value, MAX_PATH)
    for part in value.split("/"):
        _short(part, MAX_PATH_PART)
    return str(PurePosixPath(value))


def path_here(value: str) -> str:
    """A path on this machine, where ``~`` stands for the user's home folder."""
    try:
        return str(Path(path(value)).expanduser())
    except RuntimeError:
        raise ValueError(f"{quoted(value)} begins with the home folder of nobody") from None


def lab_directory(value: str) -> str:
    """A folder of the lab's own: ``lab down`` removes it, so it must be where nothing is kept."""
    folder = path(value)
    if not _LAB_DIRECTORY.fullmatch(folder):
        places = "a folder of plain names below /run, /tmp or /var/tmp"
        raise ValueError(f"{quoted(value)} cannot be the lab's, which removes it with all in it: expected {places}")
    return folder


def boolean(value: str) -> bool:
    """yes/no, true/false, on/off, 1/0."""
    lowered = value.lower()
    if lowered in TRUE:
        return True
    if lowered in FALSE:
        return False
    raise ValueError(f"{quoted(value)} is neither yes nor no: expected true or false")


def integer(low: int, high: int, unit: str = "") -> Callable[[str], int]:
    """A parser for a whole number between low and high, both included."""

    def parse(value: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(value):
            raise ValueError(f"{quoted(value)} is not a whole number")
        if len(value) > _LONGEST_NUMBER or not low <= int(value) <= high:
            raise ValueError(f"{quoted(value)} is out of range: expected {low} to {high} {unit}".rstrip())
        return int(value)

    return parse


def power_of_two(low: int, high: int, unit: str = "") -> Callable[[str], int]:
    """A parser for a power of two between low and high, both included and both powers of two."""
    in_range = integer(low, high, unit)
    powers = [1 << bits for bits in range(low.bit_length() - 1, high.bit_length())]

    def parse(value: str) -> int:
        number = in_range(value)
        if number not in powers:
            raise ValueError(f"{quoted(value)} is not a power of two: expected {', '.join(map(str, powers))}")
        return number

    return parse


def or_default(parse: Callable[[str], Value]) -> Callable[[str], Value | None]:
    """A parser that also takes the word ``default``, which gives None."""

    def parse_or_default(value: str) -> Value | None:
        if value == "default":
            return None
        try:
            return parse(value)
        except ValueError as error:
            raise ValueError(f"{error}; 'default' is taken, too") from None

    return parse_or_default


def percentage(low: float, high: float) -> Callable[[str], float]:
    """A parser for a percentage like ``1 %`` or ``0.5%`` between low and high, both included; gives the fraction, 0.01."""

    def parse(value: str) -> float:
        number, sign, rest = value.partition("%")
        number = number.strip()
        if not sign or rest or not _DECIMAL.fullmatch(number):
            raise ValueError(f"{quoted(value)} is not a percentage: expected a number and %, like 1 %")
        if len(number) > _LONGEST_NUMBER or not low <= float(number) <= high:
            raise ValueError(f"{quoted(value)} is out of range: expected {low:g} % to {high:g} %")
        return float(Decimal(number) / 100)  # 0.001 % is 1e-05 and not 1.0000000000000001e-05

    return parse


def choice(options: Sequence[str]) -> Callable[[str], str]:
    """A parser that takes one of the options."""

    def parse(value: str) -> str:
        if value not in options:
            raise ValueError(f"unknown value {quoted(value)}{nearest(value, options)}: expected {', '.join(options)}")
        return value

    return parse


def fs_devices(value: str) -> tuple[tuple[str, str], ...]:
    """``name:path,...``: host folders to offer to the guest, as (mount tag, path)."""
    pairs: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in value.split(","))):
        tag, colon, folder = part.partition(":")
        if not colon:
            raise ValueError(f"{quoted(part)} is not name:path")
        if not _MOUNT_TAG.fullmatch(tag):
            expected = "letters, digits and _ . -, beginning with a letter, digit or _"
            raise ValueError(f"{quoted(tag)} is not a name to mount by: expected {expected}")
        if tag in pairs:
            raise ValueError(f"{quoted(value)} has a name twice: {tag}")
        pairs[_short(tag, MAX_MOUNT_TAG)] = path(folder)
    return tuple(pairs.items())


def cpu_list(value: str) -> tuple[int, ...]:
    """CPUs by number, as the kernel writes them, like ``2-5,8``; in ascending order.

    >>> cpu_list("8, 2-5")
    (2, 3, 4, 5, 8)
    """
    found: set[int] = set()
    for part in value.split(","):
        match = _CPUS.fullmatch(part.strip())
        if not match:
            raise ValueError(f"{quoted(value)} is not a list of CPUs: expected numbers and ranges like 2-5,8")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            raise ValueError(f"{quoted(value)} is not a list of CPUs: the range {part.strip()} runs backwards")
        if last > MAX_CPU:
            raise ValueError(f"{quoted(value)} is not a list of CPUs: the highest number that Linux can have is {MAX_CPU}")
        if twice := found.intersection(range(first, last + 1)):
            raise ValueError(f"{quoted(value)} has CPU {min(twice)} twice")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def scheduling(value: str) -> str:
    """How the kernel schedules a thread: see sched(7)."""
    match = _SCHEDULING.fullmatch(value)
    if not match:
        raise ValueError(f"{quoted(value)} is no scheduling: expected other, batch, idle, fifo:PRIORITY, rr:PRIORITY or nice:N")
    plain, policy, priority, nice = match.groups()
    if plain:
        return value
    if policy and not int(priority):
        raise ValueError(f"{quoted(value)}: priorities are 1 to 99, 99 before all others")
    if nice and not -20 <= int(nice) <= 19:
        raise ValueError(f"{quoted(value)}: nice values are -20, before others, to 19")
    return f"{policy}:{int(priority)}" if policy else f"nice:{int(nice)}"


def nearest(value: str, options: Sequence[str], similarity: float = 0.6) -> str:
    """'' or a suggestion like `` (did you mean 'bridge'?)``; ``similarity`` as difflib has it, 1 for the same."""
    import difflib

    matches = difflib.get_close_matches(value, options, n=1, cutoff=similarity)
    return f" (did you mean {matches[0]!r}?)" if matches else ""
