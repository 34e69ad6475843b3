"""The parameters of trials as reports have them: by name, without those that a trial has not or that are left to QEMU."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autotest.report.reading import Parameters, Value
from autotest.results.names import DEFAULT, HOST_MACHINE, QEMU_CHOOSES

__all__ = ["DEFAULT", "PARAMETERS", "QEMU_CHOOSES", "Parameters", "Value", "names_of", "value_of"]

_BEFORE: Final = ("machine", "interface", "qemu", "vhost", "ioregionfd")
PARAMETERS: Final = (*_BEFORE, *QEMU_CHOOSES, "reflector", "rate", "size", "runtime")
"""Of load latency, in the order of the tree."""


def value_of(parameters: Parameters, name: str) -> Value | None:
    """A parameter's value: ``default`` for what a guest leaves to QEMU, None where there is no such parameter.

    >>> value_of({"machine": "pcvm"}, "queues"), value_of({"machine": "host"}, "queues")
    ('default', None)
    """
    leaves_it = name in QEMU_CHOOSES and parameters.get("machine") != HOST_MACHINE
    return parameters.get(name, DEFAULT if leaves_it else None)


def names_of(many: Iterable[Parameters]) -> list[str]:
    """The names of all parameters, as they come; those that the others leave to QEMU stand where the tree has them.

    >>> names_of([{"machine": "pcvm", "reflector": "xdp"}, {"machine": "pcvm", "queues": 4, "reflector": "xdp"}])
    ['machine', 'queues', 'reflector']
    """
    found = dict.fromkeys(name for parameters in many for name in parameters)
    chosen = [name for name in QEMU_CHOOSES if name in found]
    others = [name for name in found if name not in QEMU_CHOOSES]
    place = max((number for number, name in enumerate(others, 1) if name in _BEFORE), default=0)
    return [*others[:place], *chosen, *others[place:]]
