"""A stage is one layer of the tree: a set-up step over a prefix of the parameters, and its undoing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Generic, TypeVar

from autotest.errors import AutotestError
from autotest.plan.parameters import Case

log = logging.getLogger(__name__)

Context = TypeVar("Context")


@dataclass(frozen=True)
class Stage(Generic[Context]):
    """One set-up step.

    Attributes:
        name: for the user.
        parameter: the last parameter that the step depends on; all before it count too.
        enter: from the context of the run and the case up to that parameter, the step as a context manager.
        check: raises when what was set up does not work any more; asked after a failure. None: never asked.
        end: makes an end of what is found broken before the stages that were entered on it are left, which then have
            nothing to undo on it.
    """

    name: str
    parameter: str
    enter: Callable[[Context, Case], AbstractContextManager[object]]
    check: Callable[[Context, Case], None] | None = None
    end: Callable[[Context, Case], None] | None = None


class EnteredStages(Generic[Context]):
    """The stack of stages that are set up now.

    From one test case to the next it leaves those whose parameters differ, in reverse order, and enters the new
    ones: the fewest set-ups that the order of the cases allows.
    """

    def __init__(
        self, stages: Sequence[Stage[Context]], context: Context, on_error: Callable[[str, Exception], None]
    ) -> None:
        self._stages = tuple(stages)
        self._context = context
        self._on_error = on_error
        self._entered: list[tuple[Case, AbstractContextManager[object]]] = []

    def prefix(self, index: int, case: Case) -> Case:
        """The part of the case that the stage at that index depends on."""
        return case.prefix(case.names.index(self._stages[index].parameter) + 1)

    def move_to(self, case: Case) -> None:
        """Leave and enter stages until exactly those of the case are set up.

        Raises:
            StageFailed: a stage could not be entered; those before it stay entered.
        """
        common = 0
        while common < len(self._entered) and self._entered[common][0] == self.prefix(common, case):
            common += 1
        self.leave(keep=common)
        for index in range(common, len(self._stages)):
            prefix = self.prefix(index, case)
            try:
                manager = self._stages[index].enter(self._context, prefix)
                manager.__enter__()
            except Exception as error:
                raise StageFailed(index, self._stages[index].name, prefix, error) from error
            self._entered.append((prefix, manager))

    def broken(self) -> tuple[int, str, Exception] | None:
        """The first stage from the root that does not work any more: how many work before it, its name, the reason."""
        for index, (prefix, _) in enumerate(self._entered):
            stage = self._stages[index]
            if stage.check:
                try:
                    stage.check(self._context, prefix)
                except Exception as error:
                    return index, stage.name, error
        return None

    def leave_from(self, index: int) -> None:
        """Leave a stage that is broken, and those after it."""
        stage, (prefix, _) = self._stages[index], self._entered[index]
        if stage.end:
            try:
                stage.end(self._context, prefix)
            except (AutotestError, OSError) as error:
                log.debug("%s cannot be ended, leaving it tries again: %s", stage.name, error)
        self.leave(keep=index)

    def __len__(self) -> int:
        return len(self._entered)

    def leave(self, keep: int = 0) -> None:
        """Leave all stages but the first ``keep``, in reverse order; an error of one does not keep the others."""
        interruption: BaseException | None = None
        while len(self._entered) > keep:
            _, manager = self._entered.pop()
            name = self._stages[len(self._entered)].name
            try:
                try:
                    manager.__exit__(None, None, None)
                except Exception as error:
                    self._on_error(name, error)
            except BaseException as error:  # Ctrl-C or a bug during teardown: the rest is still torn down
                interruption = error
        if interruption:
            raise interruption


class StageFailed(Exception):
    """A stage could not be entered: everything below its prefix cannot be measured."""

    def __init__(self, index: int, stage: str, prefix: Case, reason: Exception) -> None:
        self.index = index
        self.stage = stage
        self.prefix = prefix
        self.reason = reason
        super().__init__(f"{stage}: {reason}")
