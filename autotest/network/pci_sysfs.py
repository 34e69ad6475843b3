"""Asking a machine about its PCI devices, and having them changed: one command there for each question, however much it asks."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotest.errors import TestbedError
from autotest.network import pci_there
from autotest.network.pci_device import NotLinux, PciBus, parse_bus
from autotest.remote.transport import Transport

LOOK: Mapping[str, Mapping[str, Any]] = {"bus": {}, "interfaces": {}}  # what PciSysfs.bus() needs
_TIMEOUT = 120.0  # seconds; whatever may take long there has a deadline of its own


@dataclass(frozen=True)
class Holder:
    """A process that has a device open."""

    pid: int
    command: str
    holds: str

    def __str__(self) -> str:
        return f"process {self.pid}, {self.command or 'without a name'}, has {self.holds} open"


class PciSysfs:
    """The PCI part of a machine's sysfs, which is the same in all its network namespaces; see :mod:`autotest.network.pci_there`.

    Args:
        root: the folder in which ``sys``, ``proc`` and ``dev`` are.
    """

    def __init__(self, transport: Transport, root: str = "/") -> None:
        self.name = transport.name
        self.machine = transport.outside
        self.namespace = transport if transport.outside is not transport else None
        """Where the machine's own interfaces are in a network namespace: the way into it."""
        self._root = root

    def ask(self, asked: Mapping[str, Mapping[str, Any]], sudo: bool = False, inside: bool = False) -> dict[str, Any]:
        """The answers by the names of what is asked.

        Raises:
            TestbedError: something could not be done, with what the kernel says; or it is no answer.
        """
        given = json.dumps({"root": self._root, "asked": asked})
        script = Path(pci_there.__file__).read_text()
        transport = self.namespace if inside and self.namespace else self.machine
        # -I: the folder in which it runs may hold a file with the name of a module.
        printed = transport.run(["python3", "-I", "-", given], input=script, sudo=sudo, timeout=_TIMEOUT).stdout
        try:
            found = json.loads(printed)
        except (ValueError, RecursionError):
            found = None
        answers = found.get("answers") if isinstance(found, dict) else None
        if not isinstance(answers, dict) or ("error" not in found and answers.keys() != asked.keys()):
            raise TestbedError(f"{self.name}: asked about its PCI devices, it answers {printed[:200]!r}")
        if "error" in found:
            raise TestbedError(f"{self.name}: {str(found['error'])[:1000]}")
        return answers

    def look(self) -> PciBus:
        """All devices, with the interfaces that they have in the machine's own network namespace.

        Raises:
            TestbedError: sysfs says what Linux does not.
        """
        return self.bus(self.ask(LOOK))

    def bus(self, answers: Mapping[str, Any]) -> PciBus:
        """The devices, of answers to :data:`LOOK` and perhaps more. Raises as :meth:`look` does."""
        try:
            return parse_bus(answers["bus"], answers["interfaces"])
        except NotLinux as error:
            raise self.no_answer(error) from None

    def no_answer(self, error: NotLinux) -> TestbedError:
        """For an answer that Linux does not give."""
        return TestbedError(f"{self.name}: it says what Linux does not: {error}")

    def holders(self, answer: Any) -> list[Holder]:
        """The answer ``holders``. Raises TestbedError where it is none."""
        try:
            return [Holder(int(each["pid"]), str(each["command"]), str(each["holds"])) for each in answer]
        except (KeyError, TypeError, ValueError):
            raise self.no_answer(NotLinux(f"processes: {str(answer)[:100]!r}")) from None

    def refuse_holders(self, address: str, holders: list[Holder]) -> None:
        """Raises TestbedError where there are any: the kernel would wait for them, for ever if need be."""
        if holders:
            whom = "; ".join(map(str, holders))
            raise TestbedError(f"{self.name}: {address} is in use: {whom}: end it first")
