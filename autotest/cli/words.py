"""The words that a Tab offers: what the tests.conf and the output directories on the line hold.

A Tab must not take long, so this looks at files and names only, and imports next to nothing: what the measurement kind knows of
its parameters is written down here once more, and a test holds the two together.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from autotest.config.quantities import RATE, Quantity, seconds

KEYS: Final[Mapping[str, tuple[str, ...]]] = {
    "machine": ("machines",),
    "interface": ("interfaces",),
    "qemu": ("qemus",),
    "vhost": ("vhosts",),
    "ioregionfd": ("ioregionfds",),
    "queues": ("queues",),
    "rx_queue_size": ("rx_queue_sizes", "rx_queue_size"),
    "tx_queue_size": ("tx_queue_sizes", "tx_queue_size"),
    "guests": ("guests", "num_vms"),
    "reflector": ("reflectors",),
    "weights": ("weights",),
    "rate": ("rates",),
    "size": ("sizes", "size"),
    "runtime": ("runtimes",),
}
"""The parameters, with their keys in tests.conf."""

MACHINES: Final = ("host", "pcvm", "microvm")
INTERFACES: Final = (
    "bridge", "bridge-e1000", "bridge-rtl8139", "macvtap", "pnic", "vhost-user", "vfio", "vmux-pt", "vmux-emu", "vmux-emu-e810",
    "vmux-med", "vmux-dpdk", "vmux-dpdk-e810", "vmux-vdpdk",
)  # fmt: skip
SWITCHES: Final = ("vhost", "ioregionfd")
USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "machine": MACHINES, "interface": INTERFACES, "reflector": ("moongen", "xdp"), **dict.fromkeys(SWITCHES, ("on", "off")),
}  # fmt: skip
"""What is offered where no tests.conf and no results say what there is."""

_COUNT = Quantity(1, 10**6)
_NUMBERS: Final[Mapping[str, Quantity]] = {
    "rate": RATE, "runtime": seconds(1, 86_400), "size": Quantity(60, 1514),
    **dict.fromkeys(("guests", "queues", "rx_queue_size", "tx_queue_size"), _COUNT),
}  # fmt: skip
_OPERATORS = ("=", "!=", "<", "<=", ">", ">=")
_BEGUN = re.compile(r"(?P<head>.*\s)?(?P<key>[A-Za-z_]\w*)(?P<operator>!=|<=|>=|==|=|<|>)(?P<values>\S*)", re.DOTALL)
_SECONDS = 0.1  # for the names in an output directory, of which a large one has a million


def conditions(
    prefix: str, there: Mapping[str, Sequence[str]], operators: Sequence[str] = _OPERATORS, quoted: bool = True
) -> list[str]:
    """How a text of conditions may go on: a parameter, its operator, or the next one of its values.

    Without quotes around them ``=`` is the only operator that a shell leaves alone, so it comes with the parameter.

    >>> conditions("machine=pcvm r", {"machine": ["pcvm"], "rate": ["10", "20"]}, quoted=False)
    ['machine=pcvm rate=']
    >>> conditions("machine=pcvm r", {"machine": ["pcvm"], "rate": ["10", "20"]}, ("=", "<"))
    ['machine=pcvm rate=', 'machine=pcvm rate<']
    >>> conditions("rate=10,", {"rate": ["10", "20"]})
    ['rate=10,20']
    """
    if begun := _BEGUN.fullmatch(prefix):
        chosen, _comma, last = begun["values"].rpartition(",")
        before = prefix[: len(prefix) - len(last)]
        values = there.get(begun["key"], ())
        return [before + value for value in values if value.startswith(last) and value not in chosen.split(",")]
    begun_key = prefix.split(" ")[-1]
    head = prefix[: len(prefix) - len(begun_key)]
    keys = [begun_key] if begun_key in there else [name for name in there if name.startswith(begun_key)]
    if len(keys) > 1 or not (quoted or begun_key in there):
        operators = operators[:1]
    return [f"{head}{key}{operator}" for key in keys for operator in operators]


def next_of_list(prefix: str, words: Iterable[str]) -> list[str]:
    """The next one of a list with commas.

    >>> next_of_list("png,p", ["png", "pdf"])
    ['png,pdf']
    """
    chosen, comma, last = prefix.rpartition(",")
    return [f"{chosen}{comma}{word}" for word in words if word.startswith(last) and word not in chosen.split(",")]


def paths(prefix: str, is_wanted: Callable[[str], bool]) -> list[str]:
    """Folders, and the files with a name that is wanted."""
    folder, name = os.path.split(prefix)
    found = []
    with os.scandir(os.path.expanduser(folder) or ".") as entries:
        for entry in entries:
            if entry.name.startswith(name) and (name.startswith(".") or not entry.name.startswith(".")):
                if entry.is_dir():
                    found.append(os.path.join(folder, entry.name) + "/")
                elif is_wanted(entry.name):
                    found.append(os.path.join(folder, entry.name))
    return sorted(found)


def section_names(files: Iterable[Path]) -> list[str]:
    """Those of all the tests.conf, also of one with mistakes in it."""
    from autotest.config.ini import read_ini

    return [name for file in files for name in read_ini(file, file.parent).sections]


def there_is(sources: Collection[Path], sections: Collection[str] = ()) -> dict[str, list[str]]:
    """The parameters of a plan, or of results, with the values that they have in tests.conf (in these sections, if any) and in
    output directories."""
    found: dict[str, dict[str, None]] = {name: {} for name in KEYS}
    for source in sources:
        for name, value in _of_directory(source) if source.is_dir() else _of_tests(source, sections):
            found[name][value] = None
    known = {name: list(values) for name, values in found.items() if values}
    if known and all(source.is_dir() for source in sources):  # the names of files come in no order
        return {name: sorted(values, key=_in_order) for name, values in known.items()}
    return {name: known.get(name, [] if known else list(USUAL.get(name, ()))) for name in KEYS}


def _in_order(value: str) -> tuple[bool, int, str]:
    return not value.isdigit(), int(value) if value.isdigit() else 0, value


def _of_tests(file: Path, sections: Collection[str]) -> Iterator[tuple[str, str]]:
    from autotest.config.ini import read_ini

    ini = read_ini(file, file.parent)
    for section in ini.sections:
        for name, keys in KEYS.items() if not sections or section in sections else ():
            for key in keys:
                for entry in re.split(r"[,\n]", ini.value(section, key) or ""):
                    if entry.strip():
                        yield from ((name, value) for value in _values(name, entry.strip(), file.parent))


def _values(name: str, entry: str, folder: Path) -> list[str]:
    """Those of one entry of a list, as results have them; what is wrong gives none: a Tab is no place for errors."""
    try:
        if (quantity := _NUMBERS.get(name)) and (numbers := quantity.range(entry)) is not None:
            return list(map(str, numbers))
        if name == "size":
            from autotest.traffic.frame_sizes import parse

            return [str(parse(entry, folder))]
        if name in SWITCHES:
            from autotest.config.values import boolean

            return ["on" if boolean(entry) else "off"]
        if quantity and entry != "default":
            return [str(quantity.parse(entry))]
    except ValueError:
        return []
    return [entry.partition(":")[0] if name == "qemu" else entry]


def _of_directory(directory: Path) -> Iterator[tuple[str, str]]:
    """What the names of results say; of very many names only what is read in the time that a Tab may take."""
    from autotest.results.names import parse_file_name, parse_load_latency_infix

    deadline = time.monotonic() + _SECONDS
    seen: set[str] = set()
    with os.scandir(directory) as entries:
        for entry in entries:
            file = parse_file_name(entry.name)
            if file and file.infix not in seen:
                seen.add(file.infix)
                case = parse_load_latency_infix(file.infix)
                for name in KEYS:
                    if (value := getattr(case, name, None)) is not None:
                        yield name, {True: "on", False: "off"}[value] if name in SWITCHES else str(value)
            if time.monotonic() > deadline:
                return
