"""A stage is one layer of the tree: a set-up step over a prefix of the parameters, and its undoing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from autotest.errors import AutotestError
from autotest.plan.parameters import Case
from autotest.run.observer import Observer

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
        change: goes from one value of the parameter to another without being left; returns whether that is possible. All
            values before it are the same, and the stages that were entered on it have been left.
        mend: makes work again what is found broken, and keeps the rest of it; the stages that were entered on it have been
            left. None: it is left and entered anew.
    """

    name: str
    parameter: str
    enter: Callable[[Context, Case], AbstractContextManager[object]]
    check: Callable[[Context, Case], None] | None = None
    end: Callable[[Context, Case], None] | None = None
    change: Callable[[Context, Case, Case], bool] | None = None
    mend: Callable[[Context, Case], None] | None = None


@dataclass
class _Entered:
    """A stage that is set up, for which prefix, and whether it was found broken since."""

    prefix: Case
    manager: AbstractContextManager[object]
    broken: bool = False


class EnteredStages(Generic[Context]):
    """The stack of stages that are set up now.

    From one test case to the next it leaves those whose parameters differ, in reverse order, and enters the new
    ones: the fewest set-ups that the order of the cases allows.
    """

    def __init__(
        self,
        stages: Sequence[Stage[Context]],
        context: Context,
        on_error: Callable[[str, Exception], None],
        observer: Observer = Observer(),
    ) -> None:
        self._stages = tuple(stages)
        self._context = context
        self._on_error = on_error
        self._observer = observer
        self._entered: list[_Entered] = []

    def prefix(self, index: int, case: Case) -> Case:
        """The part of the case that the stage at that index depends on."""
        return case.prefix(case.names.index(self._stages[index].parameter) + 1)

    def move_to(self, case: Case) -> None:
        """Leave, change, mend and enter stages until exactly those of the case are set up.

        Raises:
            StageFailed: a stage could not be set up; those before it stay entered.
        """
        common = 0
        while common < len(self._entered) and self._is_as_wanted(common, case):
            common += 1
        if common < len(self._entered):
            self.leave(keep=common + 1)
            if not self._is_brought(common, case):
                self.leave(keep=common)
        for index in range(len(self._entered), len(self._stages)):
            prefix = self.prefix(index, case)
            stage = self._stages[index]
            self._observer.enters(stage.name, prefix)
            with self._failing(index, prefix):
                manager = stage.enter(self._context, prefix)
                manager.__enter__()
            self._entered.append(_Entered(prefix, manager))
            self._observer.entered(stage.name, prefix)

    def _is_as_wanted(self, index: int, case: Case) -> bool:
        entered = self._entered[index]
        return entered.prefix == self.prefix(index, case) and not entered.broken

    def _is_brought(self, index: int, case: Case) -> bool:
        """Mend or change the last stage that is entered, if that makes it the one of the case; returns whether it is."""
        stage, entered, prefix = self._stages[index], self._entered[index], self.prefix(index, case)
        is_the_same, is_akin = entered.prefix == prefix, entered.prefix.prefix(len(prefix) - 1) == prefix.prefix(len(prefix) - 1)
        try:
            with self._failing(index, prefix):
                if is_the_same:
                    assert entered.broken
                    if stage.mend is None:
                        return False
                    self._observer.enters(stage.name, prefix)
                    stage.mend(self._context, prefix)
                elif entered.broken or not is_akin or stage.change is None:
                    return False
                else:
                    self._observer.enters(stage.name, prefix)
                    if not stage.change(self._context, entered.prefix, prefix):
                        return False
        except BaseException:
            self.leave(keep=index)
            raise
        self._entered[index] = _Entered(prefix, entered.manager)
        self._observer.entered(stage.name, prefix)
        return True

    @contextmanager
    def _failing(self, index: int, prefix: Case) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise StageFailed(index, self._stages[index].name, prefix, error) from error

    def broken(self) -> tuple[int, str, Exception] | None:
        """The first stage from the root that does not work any more: how many work before it, its name, the reason."""
        for index, entered in enumerate(self._entered):
            stage = self._stages[index]
            if stage.check:
                try:
                    stage.check(self._context, entered.prefix)
                except Exception as error:  # noqa: BLE001  # handed to the caller
                    return index, stage.name, error
        return None

    def leave_broken(self, index: int, mend: bool) -> None:
        """Leave a stage that is broken, and those after it; with ``mend`` it stays where it can be mended when it is needed."""
        stage, entered = self._stages[index], self._entered[index]
        if stage.end:
            try:
                stage.end(self._context, entered.prefix)
            except (AutotestError, OSError) as error:
                log.debug("%s cannot be ended, leaving it tries again: %s", stage.name, error)
        entered.broken = mend and stage.mend is not None
        self.leave(keep=index + entered.broken)

    def __len__(self) -> int:
        return len(self._entered)

    def leave(self, keep: int = 0) -> None:
        """Leave all stages but the first ``keep``, in reverse order; an error of one does not keep the others."""
        interruption: BaseException | None = None
        while len(self._entered) > keep:
            manager = self._entered.pop().manager
            name = self._stages[len(self._entered)].name
            self._observer.leaves(name)
            try:
                try:
                    manager.__exit__(None, None, None)
                except Exception as error:  # noqa: BLE001  # told; the rest is still torn down
                    self._on_error(name, error)
            except BaseException as error:  # noqa: BLE001  # Ctrl-C or a bug during teardown: the rest is still torn down
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
