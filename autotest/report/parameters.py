"""The parameters of trials as reports have them: by name, without those that a trial has not or that its names do not say."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from autotest.report.reading import Parameters, Value
from autotest.results.names import (
    DEFAULT,
    EVEN,
    HOST_MACHINE,
    QEMU_CHOOSES,
    UNSAID,
)

__all__ = ["DEFAULT", "EVEN", "PARAMETERS", "QEMU_CHOOSES", "UNSAID", "Parameters", "Value", "names_of", "value_of"]

PARAMETERS: Final = (
    *("machine", "interface", "qemu", "vhost", "ioregionfd"),
    *QEMU_CHOOSES,
    *("guests", "reflector", "weights", "rate", "size", "runtime"),
)
"""Of load latency, in the order of the tree."""


def value_of(parameters: Parameters, name: str) -> Value | None:
    """A parameter's value, also one that a guest's names do not say: ``default`` for what is left to QEMU, 1 guest, ``even``.

    None where there is no such parameter.

    >>> value_of({"machine": "pcvm"}, "queues"), value_of({"machine": "pcvm"}, "guests"), value_of({"machine": "host"}, "guests")
    ('default', 1, None)
    """
    if (value := parameters.get(name)) is not None or parameters.get("machine") == HOST_MACHINE:
        return value
    return UNSAID.get(name)


def names_of(many: Iterable[Parameters]) -> list[str]:
    """The names of all parameters, as they come; those that the others do not say stand where the tree has them.

    >>> names_of([{"machine": "pcvm", "reflector": "xdp"}, {"machine": "pcvm", "queues": 4, "reflector": "xdp"}])
    ['machine', 'queues', 'reflector']
    """
    found = list(dict.fromkeys(name for parameters in many for name in parameters))
    ordered = [name for name in found if name not in UNSAID]
    for name in (name for name in PARAMETERS if name in UNSAID and name in found):
        before = [other for other in PARAMETERS[: PARAMETERS.index(name)] if other in ordered]
        ordered.insert(ordered.index(before[-1]) + 1 if before else 0, name)
    return ordered
