"""Load latency: a constant load of test frames, reflected by the DuT, with latency samples among them."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from autotest.config.testbed import Testbed
from autotest.errors import (
    AutotestError,
    CommandError,
    ConnectError,
    Problem,
    WaitTimeout,
)
from autotest.interfaces import INTERFACE_KINDS
from autotest.measurements.kind import MeasurementKind, Trial
from autotest.measurements.load_matrix import (
    MIN_FRAME_SIZE,
    PARAMETERS,
    RULES,
    SETTINGS,
    has_guest,
)
from autotest.measurements.load_run import Run
from autotest.measurements.needs import guest_settings, requirements
from autotest.plan.parameters import Case, Section
from autotest.results.identity import Plain
from autotest.results.names import render_infix
from autotest.results.verdicts import Tolerances
from autotest.run.stages import Stage
from autotest.servers.checksums import program_checksum
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers, moonprogs_folder
from autotest.traffic import dpdk
from autotest.traffic.moongen import KEYS as MOONGEN_KEYS
from autotest.traffic.moongen import ProgramEnd
from autotest.traffic.reflectors import REFLECTOR_KINDS

log = logging.getLogger(__name__)

PROGRAM = "l2-load-latency.lua"

_START_AND_DRAIN = 20.0  # seconds beyond the runtime after which a generator counts as hanging
_WARMUP_RATE = 20  # kpps, as the older tool did
_HOST_KEYS = ("admin_bridge", "admin_bridge_ip_net", "admin_tap", "root_disk_file")
_GUEST_KEYS = ("admin_iface_mac",)


def infix(case: Case) -> str:
    """What the names of the case's result files have in common: existing results have these names."""
    machine, interface, qemu, vhost, ioregionfd, queues, rx_ring, tx_ring, reflector, rate, size, runtime = (
        case.values_[: len(PARAMETERS)]
    )
    guest = (qemu and qemu[0], vhost, ioregionfd)
    return render_infix(machine, interface, *guest, reflector, rate, size, runtime, queues, rx_ring, tx_ring)


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
        for section, keys in kind.keys(case["machine"]).items():
            need(section, keys, f"interface {kind.name}")
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
    with dpdk.nic_ready(loadgen):
        yield


def _check_load_generator(servers: Servers, case: Case) -> None:
    servers.loadgen.ping()


@contextmanager
def _test_network(servers: Servers, case: Case) -> Iterator[None]:
    with servers.host.test_network(INTERFACE_KINDS[case["interface"]], guest=has_guest(case)):
        yield


def _check_test_network(servers: Servers, case: Case) -> None:
    host, kind = servers.host, INTERFACE_KINDS[case["interface"]]
    iface = host.config.test_iface
    if iface is None or kind.nic_driver(host.config):
        return
    if host.config.test_iface_dpdk_driv and host.links.show(iface) is None:
        return  # the reflector has it
    if host.far_end_sleeps:
        host.links.require_up(iface)
    else:
        host.links.require_carrier(iface)


@contextmanager
def _guest(servers: Servers, case: Case) -> Iterator[None]:
    if case["machine"] == "host":
        yield
        return
    with servers.host.running_guest(guest_settings(case), servers.guest):
        yield


def _check_guest(servers: Servers, case: Case) -> None:
    if case["machine"] != "host":
        INTERFACE_KINDS[case["interface"]].check(servers.host)
        servers.host.check_guest(servers.guest)


def _end_guest(servers: Servers, case: Case) -> None:
    if case["machine"] != "host":
        servers.host.give_up_guest(servers.guest)


@contextmanager
def _reflector(servers: Servers, case: Case) -> Iterator[None]:
    dut, reflector = _dut(servers, case), REFLECTOR_KINDS[case["reflector"]]
    if reflector.needs_programs:
        dut.upload_moonprogs(servers.local_moonprogs)
    with reflector.running(dut, _dut_iface(servers, case)):
        yield


def _check_reflector(servers: Servers, case: Case) -> None:
    REFLECTOR_KINDS[case["reflector"]].check(_dut(servers, case), _dut_iface(servers, case))


def _dut(servers: Servers, case: Case) -> DeviceUnderTest:
    return servers.guest if has_guest(case) else servers.host


def _dut_iface(servers: Servers, case: Case) -> str:
    """The interface of the device under test on which the load arrives; that of a guest once it has booted."""
    kind = INTERFACE_KINDS[case["interface"]]
    iface = servers.guest.nic if has_guest(case) else kind.dut_iface(servers.testbed.host)
    assert iface
    return iface


def _dut_mac(servers: Servers, case: Case) -> str:
    """The MAC address that the load is sent to."""
    mac = INTERFACE_KINDS[case["interface"]].dut_mac(case["machine"], servers.testbed)
    assert mac
    return mac


STAGES: tuple[Stage[Servers], ...] = (
    Stage("load generator", "machine", _load_generator, _check_load_generator),
    Stage("admin network", "machine", _admin_network, _check_admin_network),
    Stage("test network", "interface", _test_network, _check_test_network),
    Stage("guest", "tx_queue_size", _guest, _check_guest, _end_guest),
    Stage("reflector", "reflector", _reflector, _check_reflector),
)


# -- the trial ---------------------------------------------------------------------------------------------


def trial_seconds(case: Case, section: Section) -> float:
    """How long a trial takes at least: rest, warm-up and load."""
    return float(section.settings["cooldown"] + section.settings["warmup"] + case["runtime"])


def measure(servers: Servers, case: Case, section: Section, folder: Path) -> Trial:
    """Run one trial: load, latency samples, drain; then make its figures and its verdict."""
    mac = _dut_mac(servers, case)
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
            INTERFACE_KINDS[case["interface"]].check(servers.host)
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
    if has_guest(case):
        values |= inspection.guest(guest_settings(case))
    values["generator.sha256"] = inspection.generator(servers.loadgen)
    values["program.sha256"] = program_checksum(servers.local_moonprogs, PROGRAM)
    dut = _dut(servers, case)
    reflector = REFLECTOR_KINDS[case["reflector"]]
    values["reflector.sha256"] = reflector.checksum(dut, servers.local_moonprogs, not has_guest(case))
    return values


def found(inspection: Inspection, case: Case) -> dict[str, str | None]:
    """The checksum of the reflector that runs, wherever it comes from."""
    servers = inspection.servers
    dut = _dut(servers, case)
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
    requirements=requirements,
)
