"""What the record of a trial says beside its figures: what determines its result, machines, configuration, versions."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from autotest.measurements.kind import MeasurementKind
from autotest.plan.parameters import Case, Parameter, Section
from autotest.results.identity import Identity, Plain
from autotest.results.timing import Timing
from autotest.run.clock import Clock
from autotest.run.stages import Stage
from autotest.servers.inspection import Inspection
from autotest.servers.testbed import Servers


class Recorder:
    """Looks at the machines each time that a set-up is complete: no trial runs then, and what was changed since the last
    time, a QEMU that was built anew or a governor, is told with the trials that it changed.
    """

    def __init__(self, kind: MeasurementKind) -> None:
        self._kind = kind
        self._determines: Mapping[str, Plain] = {}
        self._record: dict[str, Any] = {}
        self._clock = Clock()
        self.timing = Timing()
        """That of the last record."""

    def stages(self) -> tuple[Stage[Servers], ...]:
        """The stages of the measurement kind, timed; the last one is complete when the machines were looked at."""
        *others, last = self._kind.stages

        @contextmanager
        def enter(servers: Servers, case: Case) -> Iterator[None]:
            with last.enter(servers, case):
                self._look(servers, case)
                yield

        return tuple(map(self._clock.timed, (*others, dataclasses.replace(last, enter=enter))))

    def _look(self, servers: Servers, case: Case) -> None:
        inspection = Inspection(servers)
        self._determines = self._kind.determines(inspection, case)
        self._record = {
            "testbed": inspection.testbed(),
            "machines": inspection.machines(),
            "versions": {**inspection.versions(), **self._kind.found(inspection, case)},
        }

    def record(self, case: Case, section: Section, seconds: float) -> dict[str, Any]:
        """What a trial of that case on the set-up that is complete now, which took so long, has in its record."""
        self.timing = self._clock.take(seconds, self._kind.seconds(case, section))
        found = identity(self._kind, self._determines, section)
        return {"timing": self.timing.record(), "identity": found.record(), **self._record}


def recorded(parameter: Parameter, value: Any) -> Plain:
    """A value of a parameter as records have it: a plain one as it is, anything else as the user wrote it."""
    return value if value is None or isinstance(value, int | str) else parameter.show(value)


def identity(kind: MeasurementKind, determines: Mapping[str, Plain], section: Section) -> Identity:
    """What determines a result, the settings of the section with it."""
    unsaid = {setting.name: setting.default for setting in kind.settings if setting.name in kind.determining_where_set}
    settings = {name: section.settings[name] for name in kind.determining}
    said = {f"settings.{name}": value for name, value in settings.items() if name not in unsaid or value != unsaid[name]}
    return Identity({**determines, **said})
