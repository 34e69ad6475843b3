"""What the machines of a testbed are and hold right now: for the record of a trial, and for what determines its result."""

from __future__ import annotations

import dataclasses
import hashlib
import platform
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import autotest
from autotest.config.testbed import GuestConfig, HostConfig
from autotest.qemu import accelerator
from autotest.resources import PROJECT_DIRECTORY
from autotest.results.identity import Plain, several
from autotest.servers.checksums import file_checksum, file_inode, generator_checksum
from autotest.servers.facts import MachineFacts, read_facts
from autotest.servers.guest import GuestSettings
from autotest.servers.placement import configured, roles
from autotest.servers.server import Server
from autotest.servers.testbed import Servers

T = TypeVar("T")

_RUN_FROM_CHECKOUT = ("autotest", "moonprogs")  # its folders that a measurement depends on
_COUNTED_UP = ("command line", "kernel arguments")  # of a guest: those of the first with other numbers
_UNAFFECTED = "Not affected"
_OF_KVM = ("KVM:", "VMX:")  # what follows in the kernel's words on a vulnerability changes when the first guest starts


class Inspection:
    """One look at the machines: each thing is asked once, so that all answers are of about the same time.

    Commands are run on host and loadgen: only while no trial runs. A guest is not asked: :attr:`Host.guest_facts` has what
    was found out when it booted.
    """

    def __init__(self, servers: Servers) -> None:
        self.servers = servers
        self._known: dict[object, Any] = {}

    def _once(self, key: object, ask: Callable[[], T]) -> T:
        if key not in self._known:
            self._known[key] = ask()
        known: T = self._known[key]
        return known

    def facts(self, server: Server) -> MachineFacts:
        """What that machine is."""
        return self._once(("facts", server.name), lambda: read_facts(server))

    def checksum(self, server: Server, path: str) -> str | None:
        """The SHA-256 of a file there, None where there is none."""
        return self._once(("checksum", server.name, path), lambda: file_checksum(server, path))

    def generator(self, server: Server) -> str | None:
        """The checksum over MoonGen there; see :func:`autotest.servers.checksums.generator_checksum`."""
        folder = self.servers.local_moonprogs
        return self._once(("generator", server.name), lambda: generator_checksum(server, folder))

    # -- for the record --------------------------------------------------------------------------------------

    def testbed(self) -> dict[str, Any]:
        """``testbed`` of ``trial_*.json``: the name of the machines, and their whole configuration."""
        testbed = self.servers.testbed
        name = name_of_testbed(self.facts(self.servers.host), self.facts(self.servers.loadgen))
        sections = {section: dataclasses.asdict(getattr(testbed, section)) for section in ("host", "guest", "loadgen")}
        return {"name": name, "configuration": sections}

    def machines(self) -> dict[str, Any]:
        """``machines`` of ``trial_*.json``: facts of host and loadgen, and of the guest where one runs.

        Of several guests ``guest`` is the first that is there, and of ``other guests`` it is said how they differ from it.
        """
        servers = self.servers
        host, loadgen = self.facts(servers.host).record(), self.facts(servers.loadgen).record()
        first, *others = servers.host.guests.present or [servers.host.machine(1)]
        found = {"host": host, "guest": dict(first.facts), "loadgen": loadgen}
        if others:
            of_first = first.facts.items()
            found["other guests"] = {
                machine.name: {
                    key: value for key, value in machine.facts.items() if key not in _COUNTED_UP and (key, value) not in of_first
                }
                for machine in others
            }
        return found

    def versions(self) -> dict[str, str | None]:
        """``versions`` of ``trial_*.json``."""
        machines = self.machines()
        versions = {"autotest": autotest.__version__, "git revision": git_revision(), "python": platform.python_version()}
        if machines["guest"]:
            versions["qemu"] = machines["guest"].get("qemu version")
            if switch := machines["guest"].get("switch version"):
                versions["switch"] = switch
        return versions | {f"kernel of {name}": facts["kernel"] for name, facts in machines.items() if facts.get("kernel")}

    # -- what determines a result ------------------------------------------------------------------------------

    def machine(self, server: Server) -> dict[str, Plain]:
        """What of host or loadgen determines a result."""
        found = self.facts(server)
        mitigations = ((name, _lasting(text)) for name, text in sorted(found.mitigations.items()))
        values: dict[str, Plain] = {
            "cpu": found.cpu,
            "cpus": found.cpus,
            "microcode": found.microcode,
            "smt": found.smt,
            "governor": found.governor,
            "turbo": found.turbo,
            "kernel": found.kernel,
            "kernel arguments": several(found.telling_arguments),
            "mitigations": several(f"{name}: {text}" for name, text in mitigations if text),
            "transparent hugepages": found.transparent_hugepages,
            "dpdk driver": server.config.test_iface_dpdk_driv,
        }
        # Of a NIC that is bound to no driver of the kernel now, the kernel tells nothing: that is no other NIC.
        seen = {"nic": found.nic.model, "numa node": found.nic.numa_node}
        values |= {key: value for key, value in seen.items() if value is not None}
        return {f"{server.name}.{key}": value for key, value in values.items()}

    def guest(self, settings: GuestSettings, count: int = 1) -> dict[str, Plain]:
        """What of QEMU and the guests that it is about to run determines a result; all guests are alike.

        The checksum of a disk that the guest writes to would be another after each boot: of such a disk it is told only
        which one it is.
        """
        host, config = self.servers.host, self.servers.testbed.guest
        qemu = self._qemu(settings.program(host.config))
        disk, is_kept = host.config.root_disk_file or "", host.config.root_disk_snapshot or count > 1
        wanted = host.config.accelerator
        return {
            **qemu,
            **self._switch(settings),
            "guest image.file": None if is_kept else self._once(("inode", disk), lambda: file_inode(host, disk)),
            "guest image.sha256": self.checksum(host, disk) if is_kept else None,
            "guest kernel.sha256": self.checksum(host, config.kernel) if config.kernel else None,
            "guest initrd.sha256": self.checksum(host, config.initrd) if config.initrd else None,
            # Those of autotest's own init are names and addresses.
            "guest.kernel arguments": several(word for word in config.kernel_args.split() if not word.startswith("autotest.")),
            "guest.vcpus": config.vcpus,
            "guest.memory": config.memory,
            "guest.cpu model": config.cpu_model,
            "guest.accelerator": self._accelerator(settings) if wanted == "auto" else wanted,
            **_only_where_set(settings, host.config, config),
            **self._further_nics(settings, count),
            **configured(host.config, roles(vhost=settings.options.vhost, switch=settings.interface.has_process)),
        }

    def _further_nics(self, settings: GuestSettings, count: int) -> dict[str, Plain]:
        """The NICs that guests other than the first have of their own; nothing where they have none."""
        host, kind = self.servers.host, settings.interface
        shares = kind.needs.driver_key == "test_iface_vfio_driv" and host.config.test_iface_vfs
        if count == 1 or shares or kind.nic_driver(host.config) is None:
            return {}
        devices = [host.pci.show(address) for address, _ in host.config.guest_nics[: count - 1]]
        return {"guests.nics": several(f"{device.vendor:04x}:{device.device:04x}" if device else "none" for device in devices)}

    def _switch(self, settings: GuestSettings) -> dict[str, Plain]:
        """The program between wire and guest; nothing where there is none."""
        program = settings.interface.program
        if program is None:
            return {}
        name = program(self.servers.host.config)
        return {"switch.sha256": self._once(("switch", name), lambda: self._program_checksum(name))}

    def _program_checksum(self, program: str) -> str | None:
        """As root, who runs it: sudo may look for programs elsewhere."""
        host = self.servers.host
        script = 'readlink -f -- "$(command -v -- "$1")"'
        path = host.run(["sh", "-c", script, "sh", program], sudo=True, check=False).stdout.strip()
        return self.checksum(host, path) if path else None

    def _qemu(self, program: str) -> dict[str, Plain]:
        host = self.servers.host

        def ask() -> dict[str, Plain]:
            digest = self._program_checksum(program)
            answer = host.run([program, "--version"], sudo=True, check=False).stdout if digest else ""
            version = answer.partition("\n")[0].removeprefix("QEMU emulator version ").strip()
            return {"qemu.version": version or None, "qemu.sha256": digest}

        return self._once(("qemu", program), ask)

    def _accelerator(self, settings: GuestSettings) -> str | None:
        """What ``auto`` means there, with that QEMU; None where QEMU or kernel are not there to find out."""
        host, kernel = self.servers.host, self.servers.testbed.guest.kernel
        program = settings.program(host.config)
        if self._qemu(program)["qemu.sha256"] is None or (kernel and self.checksum(host, kernel) is None):
            return None
        return self._once(
            ("accelerator", program),
            lambda: accelerator.choose("auto", host.transport, program, kernel, host.memory_dir),
        )


def _only_where_set(settings: GuestSettings, host: HostConfig, guest: GuestConfig) -> dict[str, Plain]:
    """What earlier versions had not, so that results of theirs stay what they are."""
    of_function = host.test_iface_vfs and settings.interface.needs.driver_key == "test_iface_vfio_driv"
    values: dict[str, Plain] = {"host.virtual function": True} if of_function else {}
    return values | ({"guest.hugepages": True} if guest.hugepages else {})


def _lasting(mitigation: str) -> str:
    """What of the kernel's words on a vulnerability holds whether a guest runs or not; empty where there is none.

    See l1tf_show_state and itlb_multihit_show_state of Linux, arch/x86/kernel/cpu/bugs.c.
    """
    parts = [part.strip() for part in mitigation.split(";")]
    return "; ".join(part for part in parts if part != _UNAFFECTED and not part.startswith(_OF_KVM))


def name_of_testbed(host: MachineFacts, loadgen: MachineFacts) -> str:
    """A name for the two machines, the same whenever they are at work: their host names, and a digest of their ids."""
    ids = "\n".join(facts.machine or facts.hostname or "" for facts in (host, loadgen))
    digest = hashlib.sha256(ids.encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{host.hostname or 'unknown'}(host) {loadgen.hostname or 'unknown'}(loadgen) {digest}"


@cache
def git_revision(folder: Path = PROJECT_DIRECTORY) -> str | None:
    """The git revision that autotest runs from, with ``+changes`` where its files differ from it; None outside of a checkout.

    Asked once: what was changed later is not what runs.
    """

    def git(*arguments: str) -> str | None:
        command = ["git", "-C", str(folder), "-c", f"safe.directory={folder}", *arguments]  # with sudo it is another user's
        try:
            ended = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=30, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return ended.stdout.strip() if ended.returncode == 0 else None

    top = git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != folder.resolve():  # installed somewhere inside of a repository of another project
        return None
    revision = git("rev-parse", "HEAD")
    changes = git("status", "--porcelain", "--", *_RUN_FROM_CHECKOUT)
    return f"{revision}+changes" if revision and changes else revision
