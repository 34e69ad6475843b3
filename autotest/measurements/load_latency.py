"""Load latency: a constant load of test frames, reflected by the DuT, with latency samples among them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from autotest.config import values
from autotest.config.testbed import Testbed
from autotest.errors import (
    AutotestError,
    CommandError,
    ConnectError,
    Problem,
    ResultsError,
    WaitTimeout,
)
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.measurements.load_run import Run
from autotest.network.kinds import INTERFACE_KINDS, dut_mac
from autotest.plan.parameters import Case, Parameter, Rule, Section, Setting
from autotest.results.identity import Plain
from autotest.results.names import acc_histogram_file, render_infix
from autotest.results.verdicts import (
    DEFAULT_TOLERANCES,
    TOLERANCE_PREFIX,
    Tolerances,
)
from autotest.run.runner import DEFAULT_RETRIES
from autotest.run.stages import Stage
from autotest.servers.checksums import program_checksum
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.guest import GuestSettings
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers, moonprogs_folder
from autotest.traffic.moongen import KEYS as MOONGEN_KEYS
from autotest.traffic.moongen import ProgramEnd
from autotest.traffic.reflectors import REFLECTOR_KINDS

log = logging.getLogger(__name__)

MACHINES = ("host", "pcvm", "microvm")
PROGRAM = "l2-load-latency.lua"
MIN_FRAME_SIZE = 60  # bytes without CRC: Ethernet's minimum
MAX_FRAME_SIZE = 1514  # a frame of the usual MTU of 1500 bytes with its 14-byte header, without CRC

_START_AND_DRAIN = 20.0  # seconds beyond the runtime after which a generator counts as hanging
_WARMUP_RATE = 20  # kpps, as the older tool did
_LONGEST_QEMU_NAME = 80
_HOST_KEYS = ("admin_bridge", "admin_bridge_ip_net", "admin_tap", "root_disk_file")
_GUEST_KEYS = ("admin_iface_mac", "test_iface_mac")


# -- parameters --------------------------------------------------------------------------------------------


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


def _has_guest(prefix: Any) -> bool:
    return prefix["machine"] != "host"


def _on_off(value: bool) -> str:
    return "on" if value else "off"


PARAMETERS = (
    Parameter("machine", "machines", values.choice(MACHINES)),
    Parameter("interface", "interfaces", values.choice(tuple(INTERFACE_KINDS))),
    Parameter(
        "qemu",
        "qemus",
        _qemu_build,
        default=(("default", ""),),
        applies=_has_guest,
        show=lambda build: build[0],
    ),
    Parameter("vhost", "vhosts", values.boolean, default=(False,), applies=_has_guest, show=_on_off),
    Parameter("ioregionfd", "ioregionfds", values.boolean, default=(False,), applies=_has_guest, show=_on_off),
    Parameter("reflector", "reflectors", values.choice(tuple(REFLECTOR_KINDS))),
    Parameter("rate", "rates", values.integer(1, 200_000, "kpps")),
    Parameter(
        "size",
        "sizes",
        values.integer(MIN_FRAME_SIZE, MAX_FRAME_SIZE, "bytes without CRC"),
        older_keys=("size",),
    ),
    Parameter("runtime", "runtimes", values.integer(1, 86_400, "s")),
)

# From which figures on a trial is not valid; docs/verdicts.md has the reasons for the defaults.
_TOLERANCES = {
    "under_sent": values.percentage(0, 100),
    "over_sent": values.percentage(0, 100),
    "stopped_early": values.percentage(0, 100),
    "dropout_seconds": values.integer(0, 86_400, "s"),
    "min_samples": values.integer(1, 1_000_000_000),
    "in_flight_frames": values.integer(0, 1_000_000_000, "frames"),
    "in_flight_share": values.percentage(0, 100),
    "no_reflection": values.percentage(0, 100),
}

SETTINGS = (
    Setting("repetitions", values.integer(1, 100_000), 1),
    # seconds before each trial: load at 20 kpps whose result is thrown away, and rest; true is what the older tool did
    Setting("warmup", values.seconds_or_switch(25.0), 0.0),
    Setting("cooldown", values.seconds_or_switch(20.0), 0.0),
    Setting("retries", values.integer(0, 100), DEFAULT_RETRIES),
    Setting("accumulate", values.boolean, True),
    Setting("outputdir", lambda text: Path(values.path(text)).expanduser()),
    *(
        Setting(TOLERANCE_PREFIX + name, parse, getattr(DEFAULT_TOLERANCES, name))
        for name, parse in _TOLERANCES.items()
    ),
)

RULES = (
    Rule(
        ("machine", "interface"),
        lambda machine, interface: INTERFACE_KINDS[interface].host_only and machine != "host",
        "this interface is the host's own: only with machine host",
    ),
    Rule(
        ("interface", "vhost"),
        lambda interface, vhost: bool(vhost) and not INTERFACE_KINDS[interface].virtio,
        "vhost only with virtio",
    ),
    Rule(
        ("machine", "interface", "ioregionfd"),
        lambda machine, interface, ioregionfd: bool(ioregionfd)
        and (machine != "microvm" or not INTERFACE_KINDS[interface].virtio),
        "ioregionfd only on microvm, and only with virtio",
    ),
    Rule(
        ("machine", "reflector"),
        lambda machine, reflector: machine == "microvm" and REFLECTOR_KINDS[reflector].needs_pci,
        "this reflector needs a PCI bus, which microvm has not",
    ),
    Rule(
        ("machine", "interface", "reflector"),
        lambda machine, interface, reflector: machine == "host"
        and interface != "pnic"
        and REFLECTOR_KINDS[reflector].needs_pci,
        "this reflector needs a PCI bus: with machine host only on pnic",
    ),
)


def infix(case: Case) -> str:
    """What the names of the case's result files have in common: existing results have these names."""
    machine, interface, qemu, *rest = case.values_[: len(PARAMETERS)]
    return render_infix(machine, interface, qemu and qemu[0], *rest)


def missing(testbed: Testbed, cases: Iterable[Case]) -> list[Problem]:
    """The configuration that these cases lack."""
    problems: dict[tuple[str | None, str | None], Problem] = {}  # by section and key: each is named once

    def need(section: str, keys: Iterable[str], needed_by: str) -> None:
        for problem in testbed.missing(section, keys, needed_by):
            problems.setdefault((problem.section, problem.key), problem)

    need("loadgen", MOONGEN_KEYS, "the load generator")
    programs = moonprogs_folder(testbed)
    if not (programs / PROGRAM).is_file():
        message = f"{programs} does not hold {PROGRAM}"
        problems["local", "moonprogs_dir"] = Problem(testbed.file, "local", "moonprogs_dir", message)
    for case in cases:
        kind, reflector = INTERFACE_KINDS[case["interface"]], REFLECTOR_KINDS[case["reflector"]]
        dut = "host" if case["machine"] == "host" else "guest"
        if dut == "guest":
            need("host", _HOST_KEYS, f"machine {case['machine']}")
            need("guest", _GUEST_KEYS, f"machine {case['machine']}")
        # No guest, no tap; but a macvtap is the host's own interface then, under the MAC address that the load goes to.
        host_keys = (key for key in kind.host_keys if dut == "guest" or key != "test_tap")
        need("host", host_keys, f"interface {kind.name}")
        if "test_macvtap" in kind.host_keys:
            need("guest", ("test_iface_mac",), f"interface {kind.name}")
        need(dut, reflector.keys, f"reflector {reflector.name}")
    return list(problems.values())


# -- stages ------------------------------------------------------------------------------------------------


@contextmanager
def _admin_network(servers: Servers, case: Case) -> Iterator[None]:
    if case["machine"] == "host":
        yield
        return
    servers.host.require_programs(("ip", "tmux", *(() if servers.host.transport.is_local else ("socat",))), "the host")
    with servers.host.admin_network():
        yield


def _check_admin_network(servers: Servers, case: Case) -> None:
    if case["machine"] != "host":
        servers.host.check_admin_network()


@contextmanager
def _load_generator(servers: Servers, case: Case) -> Iterator[None]:
    loadgen = servers.loadgen
    loadgen.require_programs(("ip", "tmux"), "the load generator")
    loadgen.upload_moonprogs(servers.local_moonprogs)
    with loadgen.journal.scope():
        if loadgen.config.test_iface and loadgen.config.test_iface_dpdk_driv is None:
            loadgen.links.up(loadgen.config.test_iface)
        yield


def _check_load_generator(servers: Servers, case: Case) -> None:
    servers.loadgen.ping()


@contextmanager
def _test_network(servers: Servers, case: Case) -> Iterator[None]:
    with servers.host.test_network(INTERFACE_KINDS[case["interface"]], guest=_has_guest(case)):
        yield


def _check_test_network(servers: Servers, case: Case) -> None:
    iface = servers.host.config.test_iface
    if iface and servers.host.config.test_iface_dpdk_driv is None:
        servers.host.links.require_carrier(iface)


@contextmanager
def _guest(servers: Servers, case: Case) -> Iterator[None]:
    if case["machine"] == "host":
        yield
        return
    with servers.host.running_guest(_guest_settings(case), servers.guest):
        yield


def _guest_settings(case: Case) -> GuestSettings:
    return GuestSettings(
        machine=case["machine"],
        interface=INTERFACE_KINDS[case["interface"]],
        qemu_path=case["qemu"][1],
        vhost=case["vhost"],
        ioregionfd=case["ioregionfd"],
    )


def _check_guest(servers: Servers, case: Case) -> None:
    if case["machine"] != "host":
        servers.host.check_guest(servers.guest)


def _end_guest(servers: Servers, case: Case) -> None:
    if case["machine"] != "host":
        servers.host.give_up_guest(servers.guest)


@contextmanager
def _reflector(servers: Servers, case: Case) -> Iterator[None]:
    dut, iface = _dut(servers, case)
    reflector = REFLECTOR_KINDS[case["reflector"]]
    if reflector.needs_programs:
        dut.upload_moonprogs(servers.local_moonprogs)
    with reflector.running(dut, iface):
        yield


def _check_reflector(servers: Servers, case: Case) -> None:
    dut, iface = _dut(servers, case)
    REFLECTOR_KINDS[case["reflector"]].check(dut, iface)


def _dut(servers: Servers, case: Case) -> tuple[DeviceUnderTest, str]:
    """The device under test, and its interface on which the load arrives."""
    if case["machine"] == "host":
        iface = INTERFACE_KINDS[case["interface"]].dut_iface(servers.testbed.host)
        assert iface
        return servers.host, iface
    assert servers.guest.config.test_iface
    return servers.guest, servers.guest.config.test_iface


STAGES: tuple[Stage[Servers], ...] = (
    Stage("load generator", "machine", _load_generator, _check_load_generator),
    Stage("admin network", "machine", _admin_network, _check_admin_network),
    Stage("test network", "interface", _test_network, _check_test_network),
    Stage("guest", "ioregionfd", _guest, _check_guest, _end_guest),
    Stage("reflector", "reflector", _reflector, _check_reflector),
)


# -- the trial ---------------------------------------------------------------------------------------------


def trial_seconds(case: Case, section: Section) -> float:
    """How long a trial takes at least: rest, warm-up and load."""
    return float(section.settings["cooldown"] + section.settings["warmup"] + case["runtime"])


def measure(servers: Servers, case: Case, section: Section, folder: Path) -> Trial:
    """Run one trial: load, latency samples, drain; then make its figures and its verdict."""
    kind = INTERFACE_KINDS[case["interface"]]
    mac = dut_mac(kind, case["machine"], servers.testbed.host, servers.testbed.guest)
    assert mac
    time.sleep(section.settings["cooldown"])  # the pause itself is what the user asked for
    warmup = section.settings["warmup"]
    if warmup:
        _run_load(servers, mac, _WARMUP_RATE, MIN_FRAME_SIZE, warmup, folder / "warmup.csv")
    started = datetime.now(UTC)
    histogram = folder / "histogram.csv"
    end = _run_load(servers, mac, case["rate"], case["size"], case["runtime"], histogram)
    output = folder / "output.log"
    output.write_text(end.output, encoding="utf-8")
    files = {"output": output, "histogram": histogram}
    run = Run(PROGRAM, end, case["rate"], case["runtime"], (started, datetime.now(UTC)), files)
    return run.judged(Tolerances.of(section.settings), lambda: _breakdown(servers, case))


def _run_load(servers: Servers, mac: str, rate: int, size: int, runtime: float, histogram: Path) -> ProgramEnd:
    arguments = [mac, "--rate", str(rate), "--size", str(size), "--time", str(runtime), "--file", "{histogram}"]
    return servers.loadgen.run_load(
        PROGRAM,
        arguments,
        fetch={"histogram": histogram},
        seconds=runtime,
        timeout=runtime + _START_AND_DRAIN,
    )


def _breakdown(servers: Servers, case: Case) -> str:
    """What broke in the trial, empty where all works: a DuT that dies halfway looks like one that loses frames."""
    try:
        _check_test_network(servers, case)
        if case["machine"] != "host":
            servers.host.require_running_guest()
        _check_reflector(servers, case)
    except (ConnectError, CommandError, WaitTimeout, OSError) as error:
        log.debug("not looked for what broke: %s", error)  # the DuT may still be busy: that breaks no trial
    except AutotestError as error:
        return str(error).partition("\n")[0].rstrip(":")
    return ""


# -- identity ----------------------------------------------------------------------------------------------


def determines(inspection: Inspection, case: Case) -> dict[str, Plain]:
    """What determines the result of a load, as it is before the case is set up; see :class:`MeasurementKind`.

    A reflector that comes with the guest's image is not asked for: the checksum of the image tells of it.
    """
    servers = inspection.servers
    values = {**inspection.machine(servers.host), **inspection.machine(servers.loadgen)}
    if _has_guest(case):
        values |= inspection.guest(_guest_settings(case))
    values["generator.sha256"] = inspection.generator(servers.loadgen)
    values["program.sha256"] = program_checksum(servers.local_moonprogs, PROGRAM)
    dut, _ = _dut(servers, case)
    reflector = REFLECTOR_KINDS[case["reflector"]]
    values["reflector.sha256"] = reflector.checksum(dut, servers.local_moonprogs, not _has_guest(case))
    return values


def found(inspection: Inspection, case: Case) -> dict[str, str | None]:
    """The checksum of the reflector that runs, wherever it comes from."""
    servers = inspection.servers
    dut, _ = _dut(servers, case)
    return {"reflector sha256": REFLECTOR_KINDS[case["reflector"]].checksum(dut, servers.local_moonprogs, True)}


KIND = MeasurementKind(
    name="load-latency",
    parameters=PARAMETERS,
    settings=SETTINGS,
    rules=RULES,
    stages=STAGES,
    infix=infix,
    missing=missing,
    measure=measure,
    seconds=trial_seconds,
    determines=determines,
    determining=("warmup", "cooldown"),
    found=found,
)
