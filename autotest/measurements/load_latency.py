"""Load latency: a constant load of test frames, reflected by the DuT, with latency samples among them."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
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
    unfitting,
    weights_of,
)
from autotest.measurements.load_run import Run
from autotest.measurements.needs import (
    guest_settings,
    needs_of_load,
    requirements,
)
from autotest.plan.parameters import Case, Section
from autotest.preflight.needs import guest_problems
from autotest.remote.parallel import require_all
from autotest.results.identity import Plain
from autotest.results.names import render_infix
from autotest.results.per_second import sending_rate, shown_rate
from autotest.results.records import LOAD_LATENCY
from autotest.results.verdicts import Tolerances
from autotest.run.observer import Observer
from autotest.run.stages import Stage
from autotest.servers.checksums import program_checksum
from autotest.servers.dut import DeviceUnderTest
from autotest.servers.guest import Guest
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers, moonprogs_folder
from autotest.traffic import dpdk
from autotest.traffic.frame_sizes import FrameSizes
from autotest.traffic.load import PROGRAM, Load
from autotest.traffic.moongen import KEYS as MOONGEN_KEYS
from autotest.traffic.moongen import Hear
from autotest.traffic.reflectors import REFLECTOR_KINDS

log = logging.getLogger(__name__)

_WARMUP_RATE = 20  # kpps, as the older tool did
_HOST_KEYS = ("admin_bridge", "admin_bridge_ip_net", "admin_tap", "root_disk_file")
_GUEST_KEYS = ("admin_iface_mac",)


def infix(case: Case) -> str:
    """What the names of the case's result files have in common: existing results have these names."""
    machine, interface, qemu, vhost, ioregionfd, queues, rx_ring, tx_ring, guests, reflector, weights, rate, size, runtime = (
        case.values_[: len(PARAMETERS)]
    )
    guest, chosen = (qemu and qemu[0], vhost, ioregionfd), (queues, rx_ring, tx_ring, guests, weights)
    return render_infix(machine, interface, *guest, reflector, rate, size, runtime, *chosen)


def missing(testbed: Testbed, cases: Iterable[Case]) -> list[Problem]:
    """The configuration that these cases lack, or that has no room for so many guests as they have."""
    most_guests: Counter[str] = Counter()
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
            most_guests[kind.name] = max(most_guests[kind.name], case["guests"])
        for section, keys in kind.keys(case["machine"]).items():
            need(section, keys, f"interface {kind.name}")
        need(dut, reflector.keys, f"reflector {reflector.name}")
    for name, count in most_guests.items():
        for problem in guest_problems(testbed, INTERFACE_KINDS[name], count):
            problems.setdefault((problem.section, problem.key), problem)
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
def _guests(servers: Servers, case: Case) -> Iterator[None]:
    if not has_guest(case):
        yield
        return
    with servers.host.guests.running(guest_settings(case), case["guests"]):
        yield


def _change_guests(servers: Servers, before: Case, case: Case) -> bool:
    return has_guest(case) and servers.host.guests.change(case["guests"])


def _check_guests(servers: Servers, case: Case) -> None:
    if has_guest(case):
        servers.host.guests.check()


def _end_guests(servers: Servers, case: Case) -> None:
    if has_guest(case):
        servers.host.guests.end_broken()


def _mend_guests(servers: Servers, case: Case) -> None:
    if has_guest(case):
        servers.host.guests.mend()


@contextmanager
def _reflectors(servers: Servers, case: Case) -> Iterator[None]:
    reflector = REFLECTOR_KINDS[case["reflector"]]

    def start(dut: DeviceUnderTest) -> None:
        if reflector.needs_programs:
            dut.upload_moonprogs(servers.local_moonprogs)
        reflector.up(dut, _iface(servers, case, dut))

    with servers.journal.scope():
        require_all({dut.name: partial(start, dut) for dut in _duts(servers, case)})
        yield


def _check_reflectors(servers: Servers, case: Case) -> None:
    check = REFLECTOR_KINDS[case["reflector"]].check
    require_all({dut.name: partial(check, dut, _iface(servers, case, dut)) for dut in _duts(servers, case)})


def _duts(servers: Servers, case: Case) -> list[DeviceUnderTest]:
    """What reflects the load: the guests that are there, or the host."""
    return [machine.guest for machine in servers.host.guests.present] if has_guest(case) else [servers.host]


def _iface(servers: Servers, case: Case, dut: DeviceUnderTest) -> str:
    """The interface of a device under test on which the load arrives; that of a guest once it has booted."""
    of_host = INTERFACE_KINDS[case["interface"]].dut_iface
    iface = dut.nic if isinstance(dut, Guest) else of_host(servers.testbed.host)
    assert iface
    return iface


def _macs(servers: Servers, case: Case) -> dict[int, str]:
    """The MAC addresses that the load is sent to, by the number of the guest, or 1 for the host."""
    of = INTERFACE_KINDS[case["interface"]].dut_mac
    testbeds = {1: servers.testbed}
    if has_guest(case):
        testbeds = {machine.number: machine.testbed for machine in servers.host.guests.present}
    macs = {number: of(case["machine"], testbed) for number, testbed in testbeds.items()}
    return {number: mac for number, mac in macs.items() if mac}


STAGES: tuple[Stage[Servers], ...] = (
    Stage("load generator", "machine", _load_generator, _check_load_generator),
    Stage("admin network", "machine", _admin_network, _check_admin_network),
    Stage("test network", "interface", _test_network, _check_test_network),
    Stage("guest", "guests", _guests, _check_guests, _end_guests, _change_guests, _mend_guests),
    Stage("reflector", "reflector", _reflectors, _check_reflectors),
)


# -- the trial ---------------------------------------------------------------------------------------------


def trial_seconds(case: Case, section: Section) -> float:
    """How long a trial takes at least: rest, warm-up and load."""
    return float(section.settings["cooldown"] + section.settings["warmup"] + case["runtime"])


def measure(servers: Servers, case: Case, section: Section, folder: Path, observer: Observer) -> Trial:
    """Run one trial: load, latency samples, drain; then make its figures and its verdict."""
    macs = _macs(servers, case)
    weights = tuple(weights_of(case)[number - 1] for number in macs)
    sizes = FrameSizes.of(case["size"])
    load = Load(tuple(macs.values()), weights, sizes.of_guests(tuple(macs)), section.settings["threads"])
    cooldown, warmup = section.settings["cooldown"], section.settings["warmup"]
    if cooldown:
        observer.phase("rest", cooldown)
        time.sleep(cooldown)  # the pause itself is what the user asked for
    if warmup:
        observer.phase("warm-up", warmup)
        before = replace(load, sizes=FrameSizes.of(MIN_FRAME_SIZE))
        before.run(servers.loadgen, _WARMUP_RATE, warmup, _files(load, folder, "warmup_"), _rate_reader(before, observer))
    observer.phase("load", case["runtime"])
    started = datetime.now(UTC)
    fetched = _files(load, folder)
    end = load.run(servers.loadgen, case["rate"], case["runtime"], fetched, _rate_reader(load, observer))
    output = folder / "output.log"
    output.write_text(end.output, encoding="utf-8")
    run = Run(
        PROGRAM,
        end,
        case["rate"],
        case["runtime"],
        (started, datetime.now(UTC)),
        {"output": output, **fetched},
        guests=tuple(macs) if load.is_shared else (),
        weights=weights,
        missing=servers.host.guests.missing if has_guest(case) else {},
    )
    trial = run.judged(Tolerances.of(section.settings), lambda: _breakdown(servers, case))
    return trial if sizes.single else replace(trial, record={**trial.record, "frame_sizes": sizes.record()})


def _rate_reader(load: Load, observer: Observer) -> Hear:
    """Tells the observer at which rate the load is sent, by what the load program writes."""

    def read(text: str) -> None:
        rate = sending_rate(text, load.frame_bytes)
        if rate:
            observer.reads(shown_rate(rate))

    return read


def _files(load: Load, folder: Path, prefix: str = "") -> dict[str, Path]:
    """Where the files go that the load program writes."""
    return {name: folder / f"{prefix}{name}.csv" for name in ("histogram", *(["guests"] if load.is_shared else []))}


def _breakdown(servers: Servers, case: Case) -> str:
    """What broke in the trial, empty where all works: a DuT that dies halfway looks like one that loses frames."""
    try:
        _check_test_network(servers, case)
        for machine in servers.host.guests.present if has_guest(case) else ():
            INTERFACE_KINDS[case["interface"]].check(machine)
            machine.require_running()
        _check_reflectors(servers, case)
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
        values |= inspection.guest(guest_settings(case), case["guests"])
    values["generator.sha256"] = inspection.generator(servers.loadgen)
    values["program.sha256"] = program_checksum(servers.local_moonprogs, PROGRAM)
    dut = servers.guest if has_guest(case) else servers.host
    reflector = REFLECTOR_KINDS[case["reflector"]]
    values["reflector.sha256"] = reflector.checksum(dut, servers.local_moonprogs, not has_guest(case))
    return values


def found(inspection: Inspection, case: Case) -> dict[str, str | None]:
    """The checksum of the reflector that runs, wherever it comes from; all guests have the same image."""
    servers = inspection.servers
    dut = _duts(servers, case)[0]
    return {"reflector sha256": REFLECTOR_KINDS[case["reflector"]].checksum(dut, servers.local_moonprogs, True)}


KIND = MeasurementKind(
    name=LOAD_LATENCY,
    parameters=PARAMETERS,
    settings=SETTINGS,
    rules=RULES,
    stages=STAGES,
    infix=infix,
    missing=missing,
    measure=measure,
    seconds=trial_seconds,
    determines=determines,
    determining=("warmup", "cooldown", "threads"),
    determining_where_set=("threads",),
    found=found,
    requirements=requirements,
    needs_of_load=needs_of_load,
    unfitting=unfitting,
)
