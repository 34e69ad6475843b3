"""One thing that a set-up needs of a server, and what is found when it is looked at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autotest.preflight.survey import Survey


class Status(StrEnum):
    """How it came out: as needed, such that numbers may suffer, or such that nothing can be measured."""

    PASS = "pass"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """What was found.

    Attributes:
        detail: for the user, in a line; further lines are what a program wrote.
        remedy: what to do about it; empty where nothing is to be done.
    """

    status: Status
    detail: str
    remedy: str = ""

    @property
    def in_words(self) -> str:
        """The first line of the detail, and the remedy."""
        return "; ".join(filter(None, (self.detail.partition("\n")[0], self.remedy)))


def passed(detail: str) -> Finding:
    """It is as needed."""
    return Finding(Status.PASS, detail)


def warned(detail: str, remedy: str) -> Finding:
    """It works, but numbers may suffer."""
    return Finding(Status.WARN, detail, remedy)


def failed(detail: str, remedy: str) -> Finding:
    """What needs it cannot be measured."""
    return Finding(Status.FAIL, detail, remedy)


@dataclass(frozen=True)
class Requirement(ABC):
    """What is needed. Equal ones are looked at once.

    Attributes:
        server: ``host`` or ``loadgen``: the one that is looked at.
        after: what must not have failed before this is looked at: else nothing could be told.
    """

    server: str
    after: tuple[Requirement, ...] = field(default=(), kw_only=True)

    @property
    @abstractmethod
    def subject(self) -> str:
        """What it is about, for the user, in a few words."""

    @abstractmethod
    def look(self, survey: Survey) -> Finding:
        """Look at it. Whatever this raises is a failed requirement, with the error's text."""
