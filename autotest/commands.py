"""What each command does: load the configuration, hand over to the rooms, print what comes back."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.errors import (
    EXIT_FAILED,
    EXIT_INTERRUPTED,
    EXIT_OK,
    EXIT_TESTBED,
    AutotestError,
    ConfigError,
    Problem,
    TestbedError,
    UsageError,
)

if TYPE_CHECKING:
    from autotest.config.testbed import Testbed
    from autotest.errors import HostKeyError, LoginRefused
    from autotest.network.kinds import InterfaceKind
    from autotest.results.verdicts import Verdict
    from autotest.run.campaign import Campaign
    from autotest.run.runner import Summary

log = logging.getLogger(__name__)

Command = Callable[[argparse.Namespace], int]

_BANNER = """\
autotest {version}, testbed {file}
{names}
  SERVER.run(["uname", "-r"]).stdout     run a command, given as a list of arguments
  SERVER.ping()                          seconds to reach it
  SERVER.transport.put(PATH, "/there")   copy a file there; get("/there", PATH) brings it here
  SERVER.session("name")                 a tmux session: start([...]), output(), exit_code(), stop()
  SERVER.links.show("eth0")              what is known of a network interface
  host.kill_guest()                      ends the guest of run-guest; help(host) says more
  guest.reflector_up("xdp")              or "moongen"; reflector_down("xdp") stops it
  loadgen.run_load("l2-load-latency.lua",
      ["52:54:00:fa:00:60", "--rate", "5", "--time", "1", "--file", "/dev/null"], fetch={{}}, seconds=1, timeout=20)
End with Ctrl-D."""


def _project_directory() -> Path:
    return Path(__file__).resolve().parents[1]


def _testbed(options: argparse.Namespace) -> Testbed:
    from autotest.config.testbed import load_testbed

    return load_testbed(options.config, _project_directory())


def ping(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    code = EXIT_OK
    with open_testbed(_testbed(options)) as servers:
        for server in servers.all():
            try:
                way = "locally" if server.transport.is_local else "over SSH"
                print(f"{server.name:<8} {server.config.fqdn}: reached {way} in {server.ping() * 1000:.1f} ms")
            except TestbedError as error:
                print(f"{server.name:<8} {server.config.fqdn}: not reached: {error}")
                code = EXIT_TESTBED
    return code


# -- guest and networks ------------------------------------------------------------------------------------


def _interface(name: str) -> InterfaceKind:
    from autotest.config.values import nearest
    from autotest.network.kinds import INTERFACE_KINDS

    if name not in INTERFACE_KINDS:
        known = list(INTERFACE_KINDS)
        raise UsageError(f"-i {name}: unknown interface{nearest(name, known)}; known are {', '.join(known)}")
    return INTERFACE_KINDS[name]


def _need_keys(testbed: Testbed, kind: InterfaceKind, guest: bool) -> None:
    """Raises ConfigError when the configuration lacks what networks and guest need."""
    problems = testbed.missing("host", ("admin_bridge", "admin_bridge_ip_net", "admin_tap"), "the admin network")
    problems += testbed.missing("host", kind.host_keys, f"interface {kind.name}")
    problems += testbed.missing("guest", ("test_iface_mac", "admin_iface_mac"), "the guest")
    if guest:
        problems += testbed.missing("host", ("root_disk_file",), "the guest")
    if problems:
        raise ConfigError(problems)


def run_guest(options: argparse.Namespace) -> int:
    import dataclasses

    from autotest.errors import HostKeyError, LoginRefused
    from autotest.run.opening import open_testbed, undo_what_is_left
    from autotest.servers.guest import QEMU_MACHINES, GuestSettings, with_overrides

    kind = _interface(options.interface)
    if options.machine not in QEMU_MACHINES:
        raise UsageError(f"-m {options.machine}: unknown machine; known are {', '.join(QEMU_MACHINES)}")
    if kind.host_only:
        raise UsageError(f"-i {kind.name}: this interface is the host's own, no guest has it")
    testbed = _testbed(options)
    host, guest = with_overrides(testbed.host, testbed.guest, options.cpus, options.memory, options.disk)
    testbed = dataclasses.replace(testbed, host=host, guest=guest)
    _need_keys(testbed, kind, guest=True)
    settings = GuestSettings(
        machine=options.machine,
        interface=kind,
        qemu_path=options.qemu_path,
        vhost=options.vhost,
        ioregionfd=options.ioregionfd,
        rx_queue_size=options.rx_queue_size,
        tx_queue_size=options.tx_queue_size,
        debug=options.debug,
    )
    refused: HostKeyError | LoginRefused | None = None
    with open_testbed(testbed, exclusive=True) as servers:
        if servers.host.guest_is_running():
            raise UsageError("a guest is running already: autotest kill-guest ends it")
        undo_what_is_left(testbed, kept=True)
        with servers.journal.kept(f"run-guest -i {kind.name}"):
            servers.host.networks_up(kind)
            servers.host.run_guest(settings, host, guest)
            try:
                seconds = servers.host.wait_for_guest(servers.guest, guest.boot_timeout)
            except (HostKeyError, LoginRefused) as error:
                refused = error
    if refused:
        raise type(refused)(f"{refused}\nthe guest runs on meanwhile; autotest kill-guest ends it") from None
    print(f"guest takes logins at {guest.fqdn}, {seconds:.1f} s after QEMU's start")
    return EXIT_OK


def kill_guest(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    testbed = _testbed(options)
    if _lab_is_down(testbed):
        print("no guest is running: the lab is down")
        return EXIT_OK
    with open_testbed(testbed, exclusive=True) as servers:
        print("guest ended" if servers.host.kill_guest() else "no guest is running")
    return EXIT_OK


def setup_network(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed, undo_what_is_left

    kind = _interface(options.interface)
    testbed = _testbed(options)
    _need_keys(testbed, kind, guest=False)
    with open_testbed(testbed, exclusive=True) as servers:
        if servers.host.guest_is_running():
            raise UsageError("a guest is using the networks: autotest kill-guest first")
        undo_what_is_left(testbed, kept=True)
        with servers.journal.kept(f"setup-network -i {kind.name}"):
            servers.host.networks_up(kind)
    print(f"networks for interface {kind.name} are up")
    return EXIT_OK


def teardown_network(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed, undo_what_is_left

    kind = _interface(options.interface) if options.interface else None
    testbed = _testbed(options)
    if _lab_is_down(testbed):
        print("no networks: the lab is down")
        return EXIT_OK
    with open_testbed(testbed, exclusive=True) as servers:
        if servers.host.guest_is_running():
            raise UsageError("a guest is using the networks: autotest kill-guest first")
        undo_what_is_left(testbed, kept=True, interface=kind)
    print("networks are down")
    return EXIT_OK


def _lab_is_down(testbed: Testbed) -> bool:
    from autotest.lab.lab import Lab

    return testbed.lab is not None and not Lab(testbed).status().is_up


# -- campaigns ---------------------------------------------------------------------------------------------


def load_campaign(files: list[Path], accept: frozenset[Verdict] = frozenset()) -> Campaign:
    """What these tests.conf describe; trials with a verdict of ``accept`` count as done."""
    from autotest.config.tests import load_all
    from autotest.measurements.load_latency import KIND
    from autotest.run.campaign import Campaign

    return Campaign(KIND, load_all(files, _project_directory(), KIND.parameters, KIND.settings), accept)


def _campaign(options: argparse.Namespace, accept: frozenset[Verdict] = frozenset()) -> tuple[Campaign, list[Path]]:
    files = [*options.files, *options.tests] or [Path("tests.conf")]
    return load_campaign(files, accept), files


def _accepted_on_a_run(options: argparse.Namespace) -> frozenset[Verdict]:
    from autotest.reporting import accepted
    from autotest.results.verdicts import Verdict

    return accepted(options) - {Verdict.VALID}


def test_load_latency(options: argparse.Namespace) -> int:
    from autotest.report.junit import require_junit_path
    from autotest.run.dry_run import describe

    accept = _accepted_on_a_run(options)
    if options.junit:
        require_junit_path(options.junit)
    problems: list[Problem] = []
    testbed, campaign = None, None
    try:
        testbed = _testbed(options)
    except ConfigError as error:
        problems += error.problems
    try:
        campaign, _ = _campaign(options, accept)
    except ConfigError as error:
        problems += error.problems
    if testbed is None or campaign is None:
        raise ConfigError([*problems, *(campaign.unwritable() if campaign else ())])
    campaign.check(testbed)
    if options.dry_run:
        for line in describe(campaign):
            print(line)
        return EXIT_OK
    campaign.require_cases()
    campaign.record_accepted()
    try:
        code = _run(testbed, campaign, options.stale)
    except BaseException as error:
        try:
            _write_junit(options.junit, campaign, str(error) or "interrupted")
        except (AutotestError, OSError) as unwritten:
            log.error(unwritten)
        raise
    _accumulate(campaign, all_sections=False)
    _write_junit(options.junit, campaign)
    return code


def _write_junit(path: Path | None, campaign: Campaign, problem: str = "") -> None:
    if path is None:
        return
    from autotest.report.junit import write_junit
    from autotest.run.checks import checks

    write_junit(path, f"autotest {campaign.kind.name}", checks(campaign, problem))


def _run(testbed: Testbed, campaign: Campaign, stale: str) -> int:
    """Compare what is done with what would be run now, and measure the rest; returns the exit code."""
    from autotest.run.campaign import count
    from autotest.run.opening import recover_if_needed
    from autotest.run.stale import can_be_compared, tell_unknown

    total, done = count(campaign.trials())
    log.info("%d trials, %d done, %d to do", total, done, total - done)
    if done == total:
        campaign.clean()
        recover_if_needed(testbed)
        if not can_be_compared(campaign):
            tell_unknown(done)
            return EXIT_OK
    return _measure(testbed, campaign, stale, all_done=done == total)


def _measure(testbed: Testbed, campaign: Campaign, stale: str, all_done: bool) -> int:
    from autotest.run.campaign import count
    from autotest.run.journal import UndoFailed
    from autotest.run.opening import open_testbed, undo_what_is_left
    from autotest.run.stale import OnStale, settle

    summary, code = None, EXIT_OK
    try:
        with ExitStack() as opened:
            try:
                servers = opened.enter_context(open_testbed(testbed, exclusive=True, temporary=True))
                settle(campaign, servers, OnStale(stale))
            except AutotestError as error:
                if not all_done or isinstance(error, UsageError):
                    raise
                log.warning("whether what is done would be measured the same way now could not be checked: %s", error)
                return EXIT_OK
            total, done = count(campaign.trials())
            if done == total:
                return EXIT_OK
            undo_what_is_left(testbed, kept=True)
            summary = campaign.run(servers, total - done)
    except KeyboardInterrupt:
        log.error("the same command goes on with the first trial that is not done")
        raise
    except UndoFailed as error:
        log.error("%s\nit stays in the journal: autotest recover tries again", error)
        code = EXIT_FAILED
        if summary is None:  # it was not even begun
            return code
    return max(code, _report(summary))


def _report(summary: Summary) -> int:
    log.info("%d trials done, %d failed", summary.done, summary.failed)
    for failure in summary.failures:
        log.error("failed: %s: %s%s", failure.name, failure.reason, f" ({failure.trials} trials)" * (failure.trials > 1))
    return EXIT_FAILED if summary.failures else EXIT_OK


def accumulate_load_latency(options: argparse.Namespace) -> int:
    campaign, _ = _campaign(options)
    changed, total = _accumulate(campaign, all_sections=True)
    print(f"the sums over repetitions of {total} test cases are up to date, {changed} of them had to be written")
    return EXIT_OK


def _accumulate(campaign: Campaign, all_sections: bool) -> tuple[int, int]:
    """Bring the sums over repetitions up to date; returns how many changed, and how many there are."""
    from autotest.results.accumulate import accumulate

    changed = total = 0
    for section in campaign.sections:
        outputdir = Path(section.settings["outputdir"])
        if (all_sections or section.settings["accumulate"]) and outputdir.is_dir():
            accumulated = accumulate(outputdir, campaign.infixes(section))
            changed += sum(case.changed for case in accumulated)
            total += sum(bool(case.repetitions) for case in accumulated)
    return changed, total


def status(options: argparse.Namespace) -> int:
    from datetime import datetime

    from autotest.errors import printable
    from autotest.report.status import status_lines
    from autotest.reporting import accepted
    from autotest.run.status import read_status

    campaign, _ = _campaign(options, accepted(options))
    for line in status_lines(read_status(campaign), datetime.now()):
        print(printable(line))
    return EXIT_OK


# -- testbed -----------------------------------------------------------------------------------------------


def shell(options: argparse.Namespace) -> int:
    import code
    import signal
    import sys

    from autotest import __version__
    from autotest.run.opening import open_testbed

    # As an interruption it would end a line of the shell, not the shell.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(EXIT_INTERRUPTED))

    with open_testbed(_testbed(options)) as servers, servers.journal.kept("shell"):
        shown = {
            server.name: server for server in servers.all() if not getattr(options, f"no_{server.name}")
        }
        names = "\n".join(f"{name}: {server!r}" for name, server in shown.items())
        banner = _BANNER.format(version=__version__, file=servers.testbed.file, names=names)
        code.interact(banner=banner, local={**shown, "servers": servers}, exitmsg="")
    return EXIT_OK


def upload_moonprogs(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    code = EXIT_OK
    with open_testbed(_testbed(options)) as servers:
        for server in servers.all():
            try:
                copied = server.upload_moonprogs(servers.local_moonprogs)
                print(f"{server.name:<8} {copied} files copied to {server.config.moonprogs_dir}")
            except (AutotestError, OSError) as error:
                print(f"{server.name:<8} not uploaded: {error}")
                code = EXIT_TESTBED
    return code


def recover(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_as_it_is, undo_what_is_left

    testbed = _testbed(options)
    with open_as_it_is(testbed, options.take_over):
        done = undo_what_is_left(testbed, kept=True, forget=options.forget)
    print("\n".join(done) or "nothing was left to undo")
    return EXIT_OK


def lab(options: argparse.Namespace) -> int:
    from autotest.lab.lab import Lab
    from autotest.run.opening import open_as_it_is, open_testbed, undo_what_is_left

    built_in = Lab(_testbed(options))
    if options.action == "up":
        with open_testbed(built_in.testbed, exclusive=True):
            pass
    elif options.action == "down":
        with open_as_it_is(built_in.testbed):
            undo_what_is_left(built_in.testbed, kept=True)
            built_in.down()
    print("\n".join(built_in.status().lines()))
    return EXIT_OK


