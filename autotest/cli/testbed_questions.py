"""The questions of ``autotest init`` about a testbed of real machines, between which it looks at them and shows what it finds."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from autotest.cli.questions import Questions, wrapped
from autotest.errors import TestbedError, printable

if TYPE_CHECKING:
    from autotest.discovery.machine import Machine, Nic
    from autotest.discovery.proposals import Plan

log = logging.getLogger(__name__)

_MOONGEN = "MoonGen"
_HOW_TO_ANSWER = (
    "Machines are named as ssh knows them; localhost is this one. Enter takes what stands in brackets, Ctrl-C ends all, "
    "and nothing is written before the last answer."
)
_NO_LINK = "No free NIC there has a link now. `ip link set dev NAME up`, on both machines, shows whose cable is connected."


def ask_for_plan(questions: Questions, ssh_config: str | None) -> Plan:
    """Ask, look, and ask about what was seen.

    Raises:
        TestbedError: a machine cannot be looked at, or has no NIC for the test.
        UsageError: something can be neither asked nor proposed.
    """
    from autotest.discovery.machine import other_ends, wired_together
    from autotest.discovery.proposals import Plan

    if not questions.asks:
        for role in ("host", "loadgen"):
            _name(questions, role)
        questions.require_answers()
    host_name, host = _machine(questions, "host", ssh_config)
    loadgen_name, loadgen = _machine(questions, "loadgen", ssh_config)
    print()
    here, there, why = wired_together(host, loadgen)
    host_nic = _nic(questions, host, here, why)
    others = [[nic for nic in nics if nic.mac != host_nic.mac] for nics in (there, loadgen.candidates)]
    loadgen_nic = _nic(questions, loadgen, other_ends(host_nic, loadgen) or others[0] or others[1], why, taken=host_nic)
    host_moongen, loadgen_moongen = _moongen(questions, host), _moongen(questions, loadgen)
    admin_net = _admin_net(questions, (host, loadgen))
    image = _image(questions, host)
    address = _guest_address(questions, admin_net) if image else ""
    qemu = _qemu(questions, host) if image else ""
    questions.require_answers()
    found = host.reflectors[0].rpartition("/")[0] if host.reflectors else None
    reflector_dir = questions.given.get("host.xdp_reflector_dir", found)
    has_kernel = "guest.kernel" in questions.given
    return Plan(
        host, loadgen, host_name, loadgen_name, ssh_config, host_nic, loadgen_nic, host_moongen, loadgen_moongen, admin_net,
        address, image, qemu, reflector_dir, has_kernel,
    )  # fmt: skip


def _machine(questions: Questions, role: str, ssh_config: str | None) -> tuple[str, Machine]:
    """Its name, and what was found there; on a terminal another one is asked for until one can be looked at."""
    from autotest.discovery.looking import look

    while True:
        name = _name(questions, role)
        try:
            machine = look(role, name, ssh_config)
            print("\n".join(printable(line) for line in _description(machine, name)))
            _require_candidates(machine)
        except TestbedError as error:
            if not questions.asks or f"{role}.fqdn" in questions.given:
                raise
            print(wrapped(str(error), "  "))
        else:
            return name, machine


def _name(questions: Questions, role: str) -> str:
    from autotest.discovery.configuration import parse_key

    what = {"host": "which runs the guests", "loadgen": "which sends the load"}[role]
    return questions.answer(
        f"{role}.fqdn",
        f"{role.capitalize()}, {what}",
        "localhost" if role == "host" else None,
        partial(parse_key, f"{role}.fqdn"),
        need=f"--{role} NAME: the machine {what}, as ssh knows it",
        hint=_HOW_TO_ANSWER if role == "host" else "",
    )


def _description(machine: Machine, name: str) -> Iterator[str]:
    """What was found on a machine, in at most 80 columns."""
    from autotest.report.tables import render_table

    yield ""
    found = [machine.hostname] if machine.hostname not in ("", name) else []
    found += [f"{machine.cpus} CPUs", f"{machine.memory / 1024:.1f} GiB of memory"]
    found += [what for what, there in (("KVM", "/dev/kvm"), ("vhost", "/dev/vhost-net")) if there in machine.devices]
    found += [_MOONGEN] if machine.moongens else []
    found += [program for program in machine.programs if program not in ("tmux", "socat")]
    yield wrapped(f"{machine.role} {name}: {', '.join(found)}")
    rows = [[nic.name or "-", nic.link, nic.driver or "-", nic.pci or "-", nic.mac or "-"] for nic in machine.nics]
    table = render_table(["NIC", "link", "driver", "PCI address", "MAC address"], rows, align="lllll")
    for number, line in enumerate(table):
        yield f"  {line}"
        nic = machine.nics[number - 1] if number else None
        if nic and nic.unfit:
            yield wrapped(f"not for the test: it {nic.unfit}", "      ")


def _require_candidates(machine: Machine) -> None:
    if not machine.candidates:
        why = "; ".join(f"{nic.name or nic.pci} {nic.unfit}" for nic in machine.nics) or "it has none"
        raise TestbedError(f"{machine.role}: no NIC can be the test NIC: {why}. It needs one without an address, and unused")


def _nic(questions: Questions, machine: Machine, likely: Sequence[Nic], why: str, taken: Nic | None = None) -> Nic:
    """The test NIC. One that the machine needs is only taken where the command line names it; ``taken`` is the other end."""
    key = f"{machine.role}.test_iface"
    candidates = ", ".join(nic.name for nic in likely or machine.candidates)
    proposal = likely[0].name if len(likely) == 1 else None
    because = f", {why}" if proposal and why else ""
    answer = questions.answer(
        key,
        f"Test NIC of the {machine.role}{because}{'' if proposal else f' ({candidates})'}",
        proposal,
        partial(_test_nic, machine, key in questions.given, taken),
        need=f"--set {key}=NAME: which NIC of the {machine.role} is wired to the other's: {candidates}",
        hint="" if any(nic.has_carrier for nic in machine.candidates) else _NO_LINK,
    )
    found = machine.nic(answer) or machine.candidates[0]  # without an answer nothing is written
    if found.unfit:
        log.warning("%s: %s %s: it is the test NIC all the same, as --set says", machine.role, found.name, found.unfit)
    return found


def _test_nic(machine: Machine, is_given: bool, taken: Nic | None, text: str) -> Nic:
    from autotest.config.values import nearest

    nic = machine.nic(text) if text else None
    names = [nic.name for nic in machine.nics if nic.name]
    if nic is None:
        raise ValueError(f"there is no NIC {text!r}{nearest(text, names)}: expected one of {', '.join(names)}")
    if taken and (nic.name, nic.mac) == (taken.name, taken.mac):
        raise ValueError(f"{nic.name} is the host's test NIC already: the wire has two ends")
    if nic.unfit and not is_given:
        all_the_same = f"--set {machine.role}.test_iface={nic.name} takes it all the same"
        raise ValueError(f"{nic.name} {nic.unfit}: take another one; {all_the_same}")
    return nic


def _moongen(questions: Questions, machine: Machine) -> str | None:
    """MoonGen's folder, None for softmoon."""
    from autotest.discovery.configuration import parse_key
    from autotest.discovery.proposals import SOFTMOON

    proposal = machine.moongens[0] if machine.moongens else SOFTMOON
    answer = questions.answer(
        f"{machine.role}.moongen_dir",
        f"{_MOONGEN}'s folder on the {machine.role}",
        proposal,
        partial(parse_key, f"{machine.role}.moongen_dir"),
        need="",
        hint=f"{SOFTMOON} comes along: it runs the same programs, but through the kernel." * (machine.role == "host"),
    )
    return None if answer == SOFTMOON else answer


def _admin_net(questions: Questions, machines: Sequence[Machine]) -> str:
    from autotest.discovery.configuration import parse_key
    from autotest.discovery.proposals import admin_network

    return questions.answer(
        "host.admin_bridge_ip_net",
        "Host's address in the guests' admin network",
        admin_network(machines),
        partial(parse_key, "host.admin_bridge_ip_net"),
        need="--set host.admin_bridge_ip_net=ADDRESS/PREFIX: the host's address in a network of the guests' own",
    )


def _image(questions: Questions, host: Machine) -> str | None:
    """The guest's root disk; None for no guests."""
    from autotest.discovery.configuration import parse_key
    from autotest.discovery.proposals import NO_GUEST

    there = f"There are {', '.join(host.images)}. " if host.images else ""
    answer = questions.answer(
        "host.root_disk_file",
        "Guests' root disk, a path on the host",
        host.images[0] if len(host.images) == 1 else None,
        partial(parse_key, "host.root_disk_file"),
        need=f"--guest-image PATH: the guests' root disk on the host; {NO_GUEST}: no guests, only machine host. {there}".rstrip(),
        hint=f"{there}{NO_GUEST}: no guests, only tests with machine host.",
    )
    return None if answer == NO_GUEST else answer


def _guest_address(questions: Questions, admin_net: str) -> str:
    from autotest.discovery.configuration import parse_key
    from autotest.discovery.proposals import guest_address

    proposal = guest_address(admin_net) if admin_net else None
    return questions.answer("guest.fqdn", "Guest's address there", proposal, partial(parse_key, "guest.fqdn"), need="")


def _qemu(questions: Questions, host: Machine) -> str:
    """The QEMU program; empty for the one in PATH."""
    from autotest.discovery.configuration import parse_key

    if "qemu-system-x86_64" in host.programs:
        return questions.given.get("host.qemu_path", "")
    return questions.answer(
        "host.qemu_path",
        "QEMU on the host, the program or its folder",
        host.qemus[0] if host.qemus else None,
        partial(parse_key, "host.qemu_path"),
        need="--set host.qemu_path=PATH: QEMU on the host, which is not in PATH there",
    )
