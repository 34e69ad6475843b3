"""``autotest init``: writes ``autotest.conf`` and ``tests.conf``, the lab's, or for machines at which it looks."""

from __future__ import annotations

import argparse
import ipaddress
import logging
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from autotest.cli.questions import Questions, wrapped
from autotest.cli.testbed_questions import ask_for_plan
from autotest.errors import (
    EXIT_INTERRUPTED,
    EXIT_OK,
    UsageError,
)
from autotest.resources import PROJECT_DIRECTORY

if TYPE_CHECKING:
    from autotest.discovery.configuration import Given
    from autotest.discovery.proposals import Plan

log = logging.getLogger(__name__)

_FILES = ("autotest.conf", "tests.conf")
_ONLY_REAL = ("host", "loadgen", "ssh_config", "guest_image", "set", "yes", "no_check")


def init(options: argparse.Namespace) -> int:
    """Write the two files that a campaign begins with."""
    from autotest.discovery.files import require_absent

    if options.config != Path(_FILES[0]):
        raise UsageError(f"-c {options.config}: init writes a new {_FILES[0]}: -o DIR says where")
    folder: Path = options.output or Path()
    require_absent(folder, _FILES)
    if options.lab:
        return _init_lab(options, folder)
    try:
        return _init_real(options, folder)
    except EOFError:
        log.error("the questions end here: nothing was written")
        return EXIT_INTERRUPTED


def _init_lab(options: argparse.Namespace, folder: Path) -> int:
    from autotest.discovery.files import write_new

    if given := [name for name in _ONLY_REAL if getattr(options, name)]:
        raise UsageError(f"--{given[0].replace('_', '-')} is for a testbed of real machines: leave it out, or --lab")
    write_new(folder, {name: (PROJECT_DIRECTORY / name).read_text(encoding="utf-8") for name in _FILES})
    testbed, tests = (folder / name for name in _FILES)
    print(f"{testbed} describes the built-in lab, {tests} a first campaign for it. Next, as root:")
    _print_steps(
        (_command(folder, "check", str(tests)), "says what is missing; makes the guest's image"),
        (_command(folder, "test-load-lat-file", str(tests)), "measures"),
    )
    return EXIT_OK


def _command(folder: Path, *words: str) -> str:
    """One of autotest's commands on the testbed in that folder."""
    config = [] if folder == Path() else ["-c", str(folder / _FILES[0])]
    return shlex.join(["autotest", *config, *words])


def _print_steps(*steps: tuple[str, str]) -> None:
    for command, what in steps:
        print(f"  {command}\n      {what}")


# -- a testbed of real machines ----------------------------------------------------------------------------


def _init_real(options: argparse.Namespace, folder: Path) -> int:
    from autotest.discovery.configuration import contents_of
    from autotest.discovery.files import write_new
    from autotest.discovery.proposals import warnings

    given = _given(options)
    asks = not options.yes and sys.stdin.isatty() and sys.stdout.isatty()
    questions = Questions(asks, given)
    plan = ask_for_plan(questions, given.get("host.ssh_config"))
    contents = contents_of(plan, given, folder)
    write_new(folder, contents)
    testbed, tests = (folder / name for name in _FILES)
    print(f"\n{testbed} and {tests} are written; every key is explained there.")
    for number, warning in enumerate(warnings(plan)):
        print(*([] if number else ["Missing so far:\n"]), wrapped(warning, "  "), sep="")
    _print_next(folder, plan)
    return EXIT_OK if options.no_check else _check(options, testbed, tests)


def _given(options: argparse.Namespace) -> Given:
    """What the command line says, by section and key."""
    from autotest.discovery.configuration import parse_given

    found = parse_given(options.set)
    for option, name in (("host", "host.fqdn"), ("loadgen", "loadgen.fqdn"), ("guest_image", "host.root_disk_file")):
        if value := getattr(options, option):
            found[name] = value
    if options.ssh_config:  # from wherever autotest is started later
        found["host.ssh_config"] = str(Path(options.ssh_config).expanduser().absolute())
    for name in found:
        _require(name, found[name])
    return found


def _require(name: str, text: str) -> None:
    """Raises UsageError where that is no value of the key."""
    from autotest.discovery.configuration import parse_key

    try:
        parse_key(name, text)
    except ValueError as error:
        raise UsageError(f"{name}: {error}") from None


# -- afterwards --------------------------------------------------------------------------------------------


def _print_next(folder: Path, plan: Plan) -> None:
    from autotest.config.testbed import load_testbed
    from autotest.remote.ssh_config import resolve

    tests = str(folder / _FILES[1])
    print("Next:")
    why = "the guest is not running yet" if plan.image else "there is no guest"
    _print_steps((_command(folder, "ping"), f"reaches the machines; {why}: exit code 3"))
    if plan.image:
        address = plan.guest_address.rpartition("@")[2]
        guest = load_testbed(folder / _FILES[0], PROJECT_DIRECTORY).guest
        prefix = plan.admin_net.partition("/")[2]
        there = f"{address}/{prefix}" if _is_address(address) else f"the address of {address}"
        demand = f"The guests' image must give {there} to its NIC with the MAC address {guest.admin_iface_mac}, and the name"
        print(wrapped(f"{demand} {guest.test_iface} to the one with {guest.test_iface_mac}.", "  "))
        way = resolve(plan.guest_address, plan.ssh_config)
        if not plan.host.is_local and not way.jumps and not way.proxy_command:
            print(f"  The guest is reached through the host. Add to {plan.ssh_config or '~/.ssh/config'}:")
            print(f"      Host {_several(address)}\n          ProxyJump {plan.host_name}")
        _print_steps(
            (_command(folder, "run-guest"), "starts a guest, and says what to do about its unknown host key"),
            (_command(folder, "kill-guest"), "ends it"),
        )
    _print_steps(
        (_command(folder, "check", tests), "says what is missing"),
        (_command(folder, "test-load-lat-file", tests), "measures; with -d it shows what it would"),
    )


def _is_address(text: str) -> bool:
    try:
        return bool(ipaddress.ip_address(text))
    except ValueError:
        return False


def _several(address: str) -> str:
    """A pattern of ssh_config(5) for the address and those of further guests; a name stands for itself."""
    return f"{address.rpartition('.')[0]}.*" if _is_address(address) and "." in address else address


def _check(options: argparse.Namespace, testbed: Path, tests: Path) -> int:
    """``autotest check`` on what was written; its exit code."""
    from autotest.cli.arguments import build_parser

    print()
    words = ["-c", str(testbed), *(["--quiet"] if options.quiet else []), "check", str(tests)]
    checking = build_parser().parse_args(words)
    return int(checking.command(checking))
