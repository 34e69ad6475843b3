"""What each command does: load the configuration, hand over to the rooms, print what comes back."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from autotest.errors import (
    EXIT_OK,
    EXIT_TESTBED,
    AutotestError,
    ConfigError,
    TestbedError,
    UsageError,
)
from autotest.resources import PROJECT_DIRECTORY

if TYPE_CHECKING:
    from autotest.config.testbed import Testbed
    from autotest.errors import HostKeyError, LoginRefused
    from autotest.interfaces import InterfaceKind, InterfaceOptions

log = logging.getLogger(__name__)

Command = Callable[[argparse.Namespace], int]


def load_configuration(options: argparse.Namespace) -> Testbed:
    from autotest.config.testbed import load_testbed

    return load_testbed(options.config, PROJECT_DIRECTORY)


def ping(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    code = EXIT_OK
    with open_testbed(load_configuration(options)) as servers:
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
    from autotest.interfaces import INTERFACE_KINDS

    if name not in INTERFACE_KINDS:
        known = list(INTERFACE_KINDS)
        raise UsageError(f"-i {name}: unknown interface{nearest(name, known)}; known are {', '.join(known)}")
    return INTERFACE_KINDS[name]


def _need_keys(testbed: Testbed, kind: InterfaceKind, guests: int) -> None:
    """Raises ConfigError when the configuration lacks what networks and so many guests need."""
    from autotest.preflight.needs import guest_problems

    problems = testbed.missing("host", ("admin_bridge", "admin_bridge_ip_net", "admin_tap"), "the admin network")
    for section, keys in kind.keys("pcvm").items():
        problems += testbed.missing(section, keys, f"interface {kind.name}")
    problems += testbed.missing("guest", ("admin_iface_mac",), "the guest")
    if guests:
        problems += testbed.missing("host", ("root_disk_file",), "the guest")
    if problems := problems or guest_problems(testbed, kind, guests):
        raise ConfigError(problems)


def _require_valid(kind: InterfaceKind, options: InterfaceOptions) -> None:
    """Raises UsageError for options that this kind of interface has not."""
    has = {
        "--vhost": kind.vhost or not options.vhost,
        "--ioregionfd": kind.ioregionfd or not options.ioregionfd,
        "--queues": kind.queues or options.queues is None,
        "--rx-queue-size": kind.ring_sizes or options.rx_queue_size is None,
        "--tx-queue-size": kind.ring_sizes or options.tx_queue_size is None,
    }
    for option, fits in has.items():
        if not fits:
            raise UsageError(f"{option}: interface {kind.name} has no such thing")
    if (options.tx_queue_size or 0) > kind.longest_tx_ring:
        raise UsageError(f"--tx-queue-size {options.tx_queue_size}: at most {kind.longest_tx_ring} with interface {kind.name}")


def run_guest(options: argparse.Namespace) -> int:
    import dataclasses
    import time

    from autotest.config.values import nearest
    from autotest.errors import HostKeyError, LoginRefused
    from autotest.interfaces import InterfaceOptions
    from autotest.preflight.needs import needs_of_guest
    from autotest.preflight.preflight import require
    from autotest.run.opening import open_testbed, undo_what_is_left
    from autotest.servers.guest import QEMU_MACHINES, GuestSettings, with_overrides

    kind = _interface(options.interface)
    if options.machine not in QEMU_MACHINES:
        like = nearest(options.machine, list(QEMU_MACHINES))
        raise UsageError(f"-m {options.machine}: unknown machine{like}; known are {', '.join(QEMU_MACHINES)}")
    if kind.nic is None:
        raise UsageError(f"-i {kind.name}: this interface is the host's own, no guest has it")
    if options.machine not in kind.machines:
        raise UsageError(f"-i {kind.name}: not with machine {options.machine}, only with {', '.join(kind.machines)}")
    chosen = InterfaceOptions(options.vhost, options.ioregionfd, options.queues, options.rx_queue_size, options.tx_queue_size)
    _require_valid(kind, chosen)
    testbed = load_configuration(options)
    host, guest = with_overrides(testbed.host, testbed.guest, options.cpus, options.memory, options.disk)
    testbed = dataclasses.replace(testbed, host=host, guest=guest)
    _need_keys(testbed, kind, options.guests)
    settings = GuestSettings(
        machine=options.machine,
        interface=kind,
        qemu_path=options.qemu_path,
        options=chosen,
        debug=options.debug,
    )
    refused: HostKeyError | LoginRefused | None = None
    with open_testbed(testbed, exclusive=True) as servers:
        if servers.host.guest_is_running():
            raise UsageError("a guest is running already: autotest kill-guest ends it")
        undo_what_is_left(testbed, kept=True)
        with servers.journal.kept(f"run-guest -i {kind.name}"):
            build = options.qemu_path or "of the configuration"
            require(servers, needs_of_guest(testbed, settings, build, rehearse=False, count=options.guests))
            servers.host.networks_up(settings, options.guests)
            machines = [servers.host.machine(number) for number in range(1, options.guests + 1)]
            start = time.monotonic()
            for machine in machines:
                machine.start(settings)
            try:
                for machine in machines:
                    machine.wait_for_login(guest.boot_timeout)
                    passed = time.monotonic() - start
                    print(f"{machine.name} takes logins at {machine.guest.config.fqdn}, {passed:.1f} s after QEMU's start")
            except (HostKeyError, LoginRefused) as error:
                refused = error
    if refused:
        raise type(refused)(f"{refused}\nthe guest runs on meanwhile; autotest kill-guest ends it") from None
    return EXIT_OK


def kill_guest(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    testbed = load_configuration(options)
    if _lab_is_down(testbed):
        print("no guest is running: the lab is down")
        return EXIT_OK
    with open_testbed(testbed, exclusive=True) as servers:
        ended = servers.host.kill_guest()
        print(f"{', '.join(ended)} ended" if ended else "no guest is running")
    return EXIT_OK


def setup_network(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed, undo_what_is_left
    from autotest.servers.guest import GuestSettings

    kind = _interface(options.interface)
    testbed = load_configuration(options)
    _need_keys(testbed, kind, guests=0)
    with open_testbed(testbed, exclusive=True) as servers:
        if servers.host.guest_is_running():
            raise UsageError("a guest is using the networks: autotest kill-guest first")
        undo_what_is_left(testbed, kept=True)
        with servers.journal.kept(f"setup-network -i {kind.name}"):
            servers.host.networks_up(GuestSettings("pcvm", kind, ""))
    print(f"networks for interface {kind.name} are up")
    return EXIT_OK


def teardown_network(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed, undo_what_is_left

    kind = _interface(options.interface) if options.interface else None
    testbed = load_configuration(options)
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


# -- testbed -----------------------------------------------------------------------------------------------


def upload_moonprogs(options: argparse.Namespace) -> int:
    from autotest.run.opening import open_testbed

    code = EXIT_OK
    with open_testbed(load_configuration(options)) as servers:
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

    testbed = load_configuration(options)
    with open_as_it_is(testbed, options.take_over):
        done = undo_what_is_left(testbed, kept=True, forget=options.forget)
    print("\n".join(done) or "nothing was left to undo")
    return EXIT_OK


def lab(options: argparse.Namespace) -> int:
    from autotest.lab.lab import Lab
    from autotest.run.opening import open_as_it_is, open_testbed, undo_what_is_left

    built_in = Lab(load_configuration(options))
    if options.action == "up":
        with open_testbed(built_in.testbed, exclusive=True):
            pass
    elif options.action == "down":
        with open_as_it_is(built_in.testbed):
            undo_what_is_left(built_in.testbed, kept=True)
            built_in.down()
    print("\n".join(built_in.status().lines()))
    return EXIT_OK
