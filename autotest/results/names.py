"""Names of result files.

A trial has an infix, which says what was measured, and a repetition, counted from 0. Its files are::

    output_INFIX_repN.log       what MoonGen printed
    histogram_INFIX_repN.csv    latency samples, ``nanoseconds,count`` per line
    guests_INFIX_repN.csv       the same per guest, ``guest,nanoseconds,count``; only where there are several
    trial_INFIX_repN.json       figures, verdict, timing and configuration; the commit mark
    acc_histogram_INFIX.csv     the sum over repetitions, one per test case

For load latency the infix is
``{machine}_{interface}_{qemu}_vhost{on|off}_ioregionfd{on|off}_{reflector}_{rate}kpps_{size}B_{runtime}s``; for machine
``host`` the part from qemu to ioregionfd is absent. Behind ioregionfd come ``_queues{N}``, ``_rxq{N}`` and ``_txq{N}``, each
only where the test case says so: a name without them is that of QEMU's own values. Then comes ``_guests{N}`` for more than one
guest, and behind the reflector ``_weights{N:N...}`` where they do not all get the same load. The size is a number, or the name
of a mix: ``imix``, ``60:7+590:4+1514:1``, a word, or several of all these with ``~`` between them, for the guests in turn.
Names are checked where they are built, so every name that exists can be parsed back to exactly what it was built from.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from autotest.errors import ResultsError

HOST_MACHINE: Final = "host"

#: Parameters of a guest's interface that are left to QEMU unless the test case says so, with their marks in the infix.
QEMU_CHOOSES: Final = {"queues": "queues", "rx_queue_size": "rxq", "tx_queue_size": "txq"}
DEFAULT: Final = "default"
"""What is said of such a parameter where it has to be told from other values."""
EVEN: Final = "even"
"""The weights of guests that all get the same load."""
IMIX: Final = "imix"
"""The name of the usual mix of Internet traffic."""

#: What a set-up with a guest has of the parameters that its names do not say.
UNSAID_OF_SET_UP: Final[Mapping[str, str | int]] = {**dict.fromkeys(QEMU_CHOOSES, DEFAULT), "guests": 1}
#: What a test case with a guest has of them.
UNSAID: Final[Mapping[str, str | int]] = {**UNSAID_OF_SET_UP, "weights": EVEN}

OUTPUT: Final = "output"
HISTOGRAM: Final = "histogram"
GUESTS: Final = "guests"
TRIAL: Final = "trial"
ACC_HISTOGRAM: Final = "acc_histogram"

SUFFIXES: Final = {OUTPUT: "log", HISTOGRAM: "csv", GUESTS: "csv", TRIAL: "json"}

#: Bytes that a file name may have on every usual file system.
MAX_NAME_BYTES: Final = 255
_LONGEST_AFFIX: Final = len("histogram_") + len("_rep999999999.json.999")
MAX_INFIX_BYTES: Final = MAX_NAME_BYTES - _LONGEST_AFFIX

_TOKEN = r"[A-Za-z0-9][A-Za-z0-9.+=@,:~-]*"
_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+=@,:~-]*"
_NUMBER = r"(?:0|[1-9][0-9]{0,8})"
_POSITIVE = r"[1-9][0-9]{0,8}"
_MARKS: Final = {**QEMU_CHOOSES, "guests": "guests"}
_MARKED = "".join(rf"(?:_{mark}(?P<{name}>{_POSITIVE}))?" for name, mark in _MARKS.items())
_WEIGHTS = rf"{_POSITIVE}(?::{_POSITIVE})+"
_SIZES = rf"(?:{_POSITIVE}(?::{_POSITIVE}(?:\+{_POSITIVE}:{_POSITIVE})+)?|[A-Za-z][A-Za-z0-9.-]*)"
_SIZE = rf"{_SIZES}(?:~{_SIZES})*"
_is_token = re.compile(_TOKEN).fullmatch
_is_name = re.compile(_NAME).fullmatch
_match_trial_file = re.compile(
    rf"(?P<kind>output|histogram|guests|trial)_(?P<infix>{_NAME})_rep(?P<repetition>{_NUMBER})\.(?P<suffix>log|csv|json)"
).fullmatch
_match_accumulated = re.compile(rf"acc_histogram_(?P<infix>{_NAME})\.csv").fullmatch
_LOAD = rf"(?P<rate>{_NUMBER})kpps_(?P<size>{_SIZE})B_(?P<runtime>{_NUMBER})s"
_is_weights = re.compile(_WEIGHTS).fullmatch
_is_size = re.compile(_SIZE).fullmatch
_is_weights_mark = re.compile(rf"weights{_WEIGHTS}").fullmatch
_match_host = re.compile(rf"{HOST_MACHINE}_(?P<interface>{_TOKEN})_(?P<reflector>{_TOKEN})_{_LOAD}").fullmatch
_match_guest = re.compile(
    rf"(?P<machine>(?!{HOST_MACHINE}_){_TOKEN})_(?P<interface>{_TOKEN})_(?P<qemu>{_NAME})"
    rf"_vhost(?P<vhost>on|off)_ioregionfd(?P<ioregionfd>on|off){_MARKED}"
    rf"_(?P<reflector>(?!weights{_WEIGHTS}_){_TOKEN})(?:_weights(?P<weights>{_WEIGHTS}))?_{_LOAD}"
).fullmatch


def _check_infix(infix: str) -> None:
    if not _is_name(infix):
        raise ResultsError(
            f"{infix!r} cannot be part of a result file's name: use letters, digits and _ . + = @ , : ~ -, "
            "beginning with a letter or digit"
        )
    if len(infix) > MAX_INFIX_BYTES:
        raise ResultsError(f"{infix!r} is too long for a file name: {len(infix)} bytes, at most {MAX_INFIX_BYTES}")


@dataclass(frozen=True, slots=True)
class TrialName:
    """One trial, by its infix and its repetition (from 0). Raises ResultsError for what cannot be a file name."""

    infix: str
    repetition: int

    def __post_init__(self) -> None:
        _check_infix(self.infix)
        if not 0 <= self.repetition <= 999_999_999:
            raise ResultsError(f"{self.infix}: repetition {self.repetition} is not a number from 0 to 999999999")

    def file(self, kind: str) -> str:
        """File name of one kind: ``output``, ``histogram``, ``guests`` or ``trial``."""
        return f"{kind}_{self.infix}_rep{self.repetition}.{SUFFIXES[kind]}"

    @property
    def output(self) -> str:
        return f"output_{self.infix}_rep{self.repetition}.log"

    @property
    def histogram(self) -> str:
        return f"histogram_{self.infix}_rep{self.repetition}.csv"

    @property
    def trial(self) -> str:
        return f"trial_{self.infix}_rep{self.repetition}.json"

    def __str__(self) -> str:
        return f"{self.infix}_rep{self.repetition}"


class ResultFile(NamedTuple):
    """A file name taken apart; ``repetition`` is None for ``acc_histogram``."""

    kind: str
    infix: str
    repetition: int | None


def acc_histogram_file(infix: str) -> str:
    """File name of the sum over the repetitions of one test case."""
    _check_infix(infix)
    return f"acc_histogram_{infix}.csv"


def parse_file_name(name: str) -> ResultFile | None:
    """Take a file name apart, or return None where no autotest gave that name.

    >>> parse_file_name("histogram_host_pnic_moongen_10kpps_60B_30s_rep2.csv")
    ResultFile(kind='histogram', infix='host_pnic_moongen_10kpps_60B_30s', repetition=2)
    """
    if match := _match_trial_file(name):
        kind, infix, repetition, suffix = match.groups()
        if SUFFIXES[kind] != suffix or len(infix) > MAX_INFIX_BYTES:
            return None
        return ResultFile(kind, infix, int(repetition))
    if (match := _match_accumulated(name)) and len(match["infix"]) <= MAX_INFIX_BYTES:
        return ResultFile(ACC_HISTOGRAM, match["infix"], None)
    return None


def render_infix(
    machine: str,
    interface: str,
    qemu: str | None,
    vhost: bool | None,
    ioregionfd: bool | None,
    reflector: str,
    rate: int,
    size: object,
    runtime: int,
    queues: int | None = None,
    rx_queue_size: int | None = None,
    tx_queue_size: int | None = None,
    guests: int | None = None,
    weights: str | None = None,
) -> str:
    """The one place where the promised form of a load latency infix is written; checks nothing, so a plan can be large.

    ``size`` is what is written of it; ``qemu`` and all behind it are None with machine ``host``, queues and ring sizes also for
    what QEMU chooses; weights are None or ``even`` for guests that all get the same load.
    """
    load = f"{rate}kpps_{size}B_{runtime}s"
    if qemu is None:
        return f"{machine}_{interface}_{reflector}_{load}"
    flags = f"vhost{'on' if vhost else 'off'}_ioregionfd{'on' if ioregionfd else 'off'}"
    chosen = (queues, rx_queue_size, tx_queue_size)
    if chosen != (None, None, None):
        flags += "".join(
            f"_{mark}{value}" for mark, value in zip(QEMU_CHOOSES.values(), chosen, strict=True) if value is not None
        )
    if guests is not None and guests > 1:
        flags += f"_guests{guests}"
        if weights is not None and weights != EVEN:
            reflector += f"_weights{weights}"
    return f"{machine}_{interface}_{qemu}_{flags}_{reflector}_{load}"


@dataclass(frozen=True, slots=True)
class LoadLatencyCase:
    """The parameters of one load latency test case, as its infix carries them.

    Attributes:
        rate: offered load in kpps.
        size: frame size in bytes, without CRC, or the name of a mix.
        runtime: seconds of load.
        qemu, vhost, ioregionfd: None exactly when the machine is ``host``.
        queues: pairs of them; like the ring sizes, in descriptors, None for what QEMU chooses, and when the machine is ``host``.
        guests: how many, 2 or more; None for one guest, and when the machine is ``host``.
        weights: one number for each guest, like ``3:1``; None where all get the same load.
    """

    machine: str
    interface: str
    reflector: str
    rate: int
    size: int | str
    runtime: int
    qemu: str | None = None
    vhost: bool | None = None
    ioregionfd: bool | None = None
    queues: int | None = None
    rx_queue_size: int | None = None
    tx_queue_size: int | None = None
    guests: int | None = None
    weights: str | None = None

    def __post_init__(self) -> None:
        for key in ("machine", "interface", "reflector"):
            if not _is_token(getattr(self, key)):
                raise ResultsError(
                    f"{key} {getattr(self, key)!r} cannot be part of a result file's name: use letters, digits and "
                    ". + = @ , : ~ -, beginning with a letter or digit"
                )
        self._check_load()
        self._check_guest()
        _check_infix(self.infix)

    def _check_load(self) -> None:
        least = {"rate": 0, "runtime": 1} | {key: 1 for key in QEMU_CHOOSES if getattr(self, key) is not None}
        if not isinstance(self.size, str):
            least["size"] = 1
        elif self.size.isdigit() or not _is_size(self.size):
            raise ResultsError(f"size {self.size!r} is neither a number nor the name of a mix, like imix or 60:7+590:4+1514:1")
        if self.guests is not None:
            least["guests"] = 2
        for key, low in least.items():
            value = getattr(self, key)
            if type(value) is not int or not low <= value <= 999_999_999:
                raise ResultsError(f"{key} {value!r} is not a whole number from {low} to 999999999")
        if self.weights is not None and (not _is_weights(self.weights) or self.weights.count(":") + 1 != self.guests):
            raise ResultsError(f"weights {self.weights!r} are not a number for each of {self.guests or 1} guests, like 3:1 for 2")

    def _check_guest(self) -> None:
        middle = (self.qemu, self.vhost, self.ioregionfd)
        if self.machine == HOST_MACHINE:
            if middle != (None, None, None) or any(getattr(self, key) is not None for key in _MARKS):
                raise ResultsError("machine 'host' has no qemu, vhost or ioregionfd, no queues, no ring sizes and no guests")
        elif None in middle:
            raise ResultsError(f"machine {self.machine!r} needs qemu, vhost and ioregionfd")
        elif not _is_name(self.qemu or ""):
            raise ResultsError(
                f"qemu {self.qemu!r} cannot be part of a result file's name: use letters, digits and "
                "_ . + = @ , : ~ -, beginning with a letter or digit"
            )
        elif _is_weights_mark(self.reflector):
            raise ResultsError(f"reflector {self.reflector!r} would be taken for weights in a result file's name")

    @property
    def infix(self) -> str:
        """The infix of the names of this case's files."""
        middle = (self.qemu, self.vhost, self.ioregionfd)
        load = (self.rate, self.size, self.runtime)
        chosen = (self.queues, self.rx_queue_size, self.tx_queue_size, self.guests)
        return render_infix(self.machine, self.interface, *middle, self.reflector, *load, *chosen, weights=self.weights)


def load_latency_infix(
    machine: str,
    interface: str,
    reflector: str,
    rate: int,
    size: int | str,
    runtime: int,
    qemu: str | None = None,
    vhost: bool | None = None,
    ioregionfd: bool | None = None,
    queues: int | None = None,
    rx_queue_size: int | None = None,
    tx_queue_size: int | None = None,
    guests: int | None = None,
    weights: str | None = None,
) -> str:
    """Infix of a load latency test case; rate in kpps, size in bytes, runtime in seconds, ring sizes in descriptors.

    One guest and even weights are the same as none said. Raises ResultsError for values that would make an ambiguous or dangerous
    file name.

    >>> load_latency_infix("pcvm", "bridge-e1000", "xdp", 10, 60, 30, "my_build", vhost=True, ioregionfd=False)
    'pcvm_bridge-e1000_my_build_vhoston_ioregionfdoff_xdp_10kpps_60B_30s'
    >>> load_latency_infix("pcvm", "bridge", "xdp", 10, 60, 30, "q", vhost=False, ioregionfd=False, queues=4, rx_queue_size=512)
    'pcvm_bridge_q_vhostoff_ioregionfdoff_queues4_rxq512_xdp_10kpps_60B_30s'
    >>> load_latency_infix("pcvm", "bridge", "xdp", 10, "imix", 30, "q", vhost=False, ioregionfd=False, guests=2, weights="3:1")
    'pcvm_bridge_q_vhostoff_ioregionfdoff_guests2_xdp_weights3:1_10kpps_imixB_30s'
    """
    guest = (qemu, vhost, ioregionfd, queues, rx_queue_size, tx_queue_size)
    several = (None if guests == 1 else guests, None if weights == EVEN else weights)
    return LoadLatencyCase(machine, interface, reflector, rate, size, runtime, *guest, *several).infix


def parse_load_latency_infix(infix: str) -> LoadLatencyCase | None:
    """Parameters of a load latency infix, or None where it is not one."""
    match = _match_host(infix) or _match_guest(infix)
    if match is None:
        return None
    found = match.groupdict()
    guest = "qemu" in found
    try:
        return LoadLatencyCase(
            machine=found.get("machine", HOST_MACHINE),
            interface=found["interface"],
            reflector=found["reflector"],
            rate=int(found["rate"]),
            size=int(found["size"]) if found["size"].isdigit() else found["size"],
            runtime=int(found["runtime"]),
            qemu=found.get("qemu"),
            vhost=found["vhost"] == "on" if guest else None,
            ioregionfd=found["ioregionfd"] == "on" if guest else None,
            weights=found.get("weights"),
            **{key: int(found[key]) for key in _MARKS if found.get(key)},
        )
    except ResultsError:
        return None
