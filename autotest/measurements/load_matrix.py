"""The matrix of load latency: its parameters, the single values of a section, and which combinations are left out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotest.config import quantities, values
from autotest.config.quantities import RATE, Quantity
from autotest.errors import Problem, ResultsError
from autotest.interfaces import INTERFACE_KINDS
from autotest.interfaces.kind import QEMU_TX_RING
from autotest.plan.parameters import Parameter, Rule, Section, Setting
from autotest.results.names import EVEN, acc_histogram_file
from autotest.results.verdicts import DEFAULT_TOLERANCES, TOLERANCE_PREFIX
from autotest.run.runner import DEFAULT_RETRIES
from autotest.traffic import frame_sizes
from autotest.traffic.frame_sizes import MIN_FRAME_SIZE as MIN_FRAME_SIZE
from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.reflectors import REFLECTOR_KINDS

MACHINES = ("host", "pcvm", "microvm")
MAX_QUEUES = 256  # pairs: MAX_TAP_QUEUES of the kernel's tun driver
RING_SIZES = 256, 1024  # descriptors: the least and the most that virtio-net takes (hw/net/virtio-net.c of QEMU)
MAX_GUESTS = 1000
MAX_WEIGHT = 1000
_LONGEST_QEMU_NAME = 80


def _qemu_build(text: str) -> tuple[str, str]:
    """``name:path`` of a QEMU build; an empty path stands for the host's ``qemu_path``."""
    name, _, path = text.partition(":")
    values.word(name)
    if len(name) > _LONGEST_QEMU_NAME:
        raise ValueError(f"{name!r} is too long, {len(name)} characters: at most {_LONGEST_QEMU_NAME} fit into the result names")
    try:
        acc_histogram_file(name)
    except ResultsError as error:
        raise ValueError(str(error)) from None
    return name, values.path(path) if path else ""


def _interface(text: str) -> str:
    """The name of an interface kind; published configurations of the older tool have vhost in the name."""
    name = text.removesuffix("-vhost")
    if name != text and text not in INTERFACE_KINDS and name in INTERFACE_KINDS:
        raise ValueError(f"{text!r} is interface {name} with vhost: write {name}, and vhosts = yes")
    return values.choice(tuple(INTERFACE_KINDS))(text)


def _weights(text: str) -> str:
    """``even``, or a whole number for each guest, like ``3:1:1``, without a common divisor."""
    if text == EVEN:
        return EVEN
    parts = [part.strip() for part in text.split(":")]
    if len(parts) < 2:
        raise ValueError(f"{values.quoted(text)} is neither {EVEN} nor a whole number for each guest, like 3:1 for two guests")
    numbers = [values.integer(1, MAX_WEIGHT)(part) for part in parts]
    if len(set(numbers)) == 1:
        raise ValueError(f"{values.quoted(text)} gives all guests the same: write {EVEN}")
    divisor = math.gcd(*numbers)
    return ":".join(str(number // divisor) for number in numbers)


def has_guest(prefix: Any) -> bool:
    return bool(prefix["machine"] != "host")


def weights_of(case: Mapping[str, Any]) -> tuple[int, ...]:
    """In which proportion the guests share the load, one number for each; with the host there is only one."""
    if case["weights"] in (None, EVEN):
        return (1,) * (case["guests"] or 1)
    return tuple(map(int, case["weights"].split(":")))


def _has_several_guests(prefix: Any) -> bool:
    return (prefix["guests"] or 0) > 1


def _on_off(value: bool) -> str:
    return "on" if value else "off"


def _or_default(value: int | None) -> str:
    return "default" if value is None else str(value)


def _number(name: str, key: str, quantity: Quantity, older_keys: tuple[str, ...] = (), **more: Any) -> Parameter:
    return Parameter(name, key, quantity.parse, older_keys, quantity=quantity, **more)


def _left_to_qemu(name: str, key: str, quantity: Quantity, parse: Callable[[str], int]) -> Parameter:
    """A parameter whose value is None, and of which nothing is said anywhere, where QEMU's own is used."""
    older = (name,) if name != key else ()
    number = values.or_default(parse)
    return Parameter(name, key, number, older, (None,), applies=has_guest, show=_or_default, quantity=quantity)


_QUEUES = Quantity(1, MAX_QUEUES)
_DESCRIPTORS = Quantity(*RING_SIZES, "descriptors")
_ring = values.power_of_two(*RING_SIZES, "descriptors")

PARAMETERS = (
    Parameter("machine", "machines", values.choice(MACHINES)),
    Parameter("interface", "interfaces", _interface),
    Parameter(
        "qemu",
        "qemus",
        _qemu_build,
        default=(("default", ""),),
        applies=has_guest,
        show=lambda build: build[0],
    ),
    Parameter("vhost", "vhosts", values.boolean, default=(False,), applies=has_guest, show=_on_off),
    Parameter("ioregionfd", "ioregionfds", values.boolean, default=(False,), applies=has_guest, show=_on_off),
    _left_to_qemu("queues", "queues", _QUEUES, _QUEUES.parse),
    _left_to_qemu("rx_queue_size", "rx_queue_sizes", _DESCRIPTORS, _ring),
    _left_to_qemu("tx_queue_size", "tx_queue_sizes", _DESCRIPTORS, _ring),
    _number("guests", "guests", Quantity(1, MAX_GUESTS), ("num_vms",), default=(1,), applies=has_guest, usual=1),
    Parameter("reflector", "reflectors", values.choice(tuple(REFLECTOR_KINDS))),
    Parameter(
        "weights",
        "weights",
        _weights,
        default=(EVEN,),
        applies=_has_several_guests,
        usual=EVEN,
        implied=lambda prefix: EVEN if has_guest(prefix) else None,
    ),
    _number("rate", "rates", RATE),
    Parameter("size", "sizes", frame_sizes.parse, older_keys=("size",), names_files=True, quantity=frame_sizes.SIZE),
    _number("runtime", "runtimes", quantities.seconds(1, 86_400)),
)

# From which figures on a trial is not valid; docs/verdicts.md has the reasons for the defaults.
_TOLERANCES = {
    "under_sent": values.percentage(0, 100),
    "over_sent": values.percentage(0, 100),
    "stopped_early": values.percentage(0, 100),
    "dropout_seconds": quantities.seconds(0, 86_400).parse,
    "min_samples": values.integer(1, 1_000_000_000),
    "in_flight_frames": values.integer(0, 1_000_000_000, "frames"),
    "in_flight_share": values.percentage(0, 100),
    "no_reflection": values.percentage(0, 100),
}

SETTINGS = (
    Setting("repetitions", values.integer(1, 100_000), 1),
    # seconds before each trial: load at 20 kpps whose result is thrown away, and rest; true is what the older tool did
    Setting("warmup", quantities.seconds_or_switch(25.0), 0.0),
    Setting("cooldown", quantities.seconds_or_switch(20.0), 0.0),
    # tasks that send the load; on a NIC each has a queue and a core of its own
    Setting("threads", values.integer(1, 8), 1),
    Setting("retries", values.integer(0, 100), DEFAULT_RETRIES),
    Setting("accumulate", values.boolean, True),
    Setting("outputdir", lambda text: Path(values.path(text)).expanduser()),
    *(Setting(TOLERANCE_PREFIX + name, parse, getattr(DEFAULT_TOLERANCES, name)) for name, parse in _TOLERANCES.items()),
)


def _weighted_guests(weights: str) -> int:
    return weights.count(":") + 1


def _reaches(machine: str, interface: str) -> bool:
    return machine in INTERFACE_KINDS[interface].machines


RULES = (
    Rule(
        ("machine", "interface"),
        lambda machine, interface: not _reaches(machine, interface) and INTERFACE_KINDS[interface].nic is None,
        "this interface is the host's own: only with machine host",
    ),
    Rule(
        ("machine", "interface"),
        lambda machine, interface: not _reaches(machine, interface) and machine == "host",
        "this interface is a guest's: not with machine host",
    ),
    Rule(
        ("machine", "interface"),
        lambda machine, interface: not _reaches(machine, interface),
        "this interface needs a PCI bus, which microvm has not",
    ),
    Rule(
        ("interface", "vhost"),
        lambda interface, vhost: bool(vhost) and not INTERFACE_KINDS[interface].vhost,
        "vhost only with virtio over tap or macvtap",
    ),
    Rule(
        ("machine", "interface", "ioregionfd"),
        lambda machine, interface, ioregionfd: (
            bool(ioregionfd) and (machine != "microvm" or not INTERFACE_KINDS[interface].ioregionfd)
        ),
        "ioregionfd only on microvm, and only with virtio",
    ),
    Rule(
        ("interface", "queues"),
        lambda interface, queues: queues is not None and not INTERFACE_KINDS[interface].queues,
        "several queues only with virtio",
    ),
    Rule(
        ("interface", "rx_queue_size"),
        lambda interface, descriptors: descriptors is not None and not INTERFACE_KINDS[interface].ring_sizes,
        "ring sizes only with virtio",
    ),
    Rule(
        ("interface", "tx_queue_size"),
        lambda interface, descriptors: descriptors is not None and not INTERFACE_KINDS[interface].ring_sizes,
        "ring sizes only with virtio",
    ),
    Rule(
        ("interface", "tx_queue_size"),
        lambda interface, descriptors: (descriptors or 0) > INTERFACE_KINDS[interface].longest_tx_ring,
        f"QEMU makes transmit rings of more than {QEMU_TX_RING} descriptors only with vhost-user",
    ),
    Rule(
        ("guests", "weights"),
        lambda guests, weights: weights not in (None, EVEN) and _weighted_guests(weights) != guests,
        "these weights are for another number of guests",
    ),
    Rule(
        ("guests", "size"),
        lambda guests, size: isinstance(size, FrameSizes) and len(size.distributions) > (guests or 1),
        "these sizes are for more guests",
    ),
    Rule(
        ("machine", "reflector"),
        lambda machine, reflector: machine == "microvm" and REFLECTOR_KINDS[reflector].needs_pci,
        "this reflector needs a PCI bus, which microvm has not",
    ),
    Rule(
        ("machine", "interface", "reflector"),
        lambda machine, interface, reflector: machine == "host" and interface != "pnic" and REFLECTOR_KINDS[reflector].needs_pci,
        "this reflector needs a PCI bus: with machine host only on pnic",
    ),
    Rule(
        ("interface", "reflector"),
        lambda interface, reflector: reflector not in (INTERFACE_KINDS[interface].reflectors or (reflector,)),
        "the guest's driver for this interface takes no XDP program",
    ),
)


def unfitting(section: Section) -> list[Problem]:
    """Values of a section that fit none of its numbers of guests."""
    guests = section.lists["guests"]
    there = ", ".join(map(str, guests))
    found = []
    for weights in section.lists["weights"]:
        wanted = _weighted_guests(weights)
        if weights != EVEN and wanted not in guests:
            is_for = f"{values.quoted(weights)} is for {wanted} guests, and guests is {there}"
            message = f"{is_for}: expected as many numbers, or {wanted} among guests"
            found.append(Problem(section.file, section.name, "weights", message))
    for size in section.lists["size"]:
        wanted = len(FrameSizes.of(size).distributions)
        if wanted > max(guests):
            is_for = f"{values.quoted(str(size))} is for {wanted} guests or more, and guests is {there}"
            message = f"{is_for}: expected at most {max(guests)} with | between them, or {wanted} among guests"
            found.append(Problem(section.file, section.name, "sizes", message))
    return found
