"""JUnit files: what was checked and how it came out, for a build server."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotest.errors import UsageError, printable
from autotest.results.files import write_atomically

if TYPE_CHECKING:
    from junitparser import TestCase

State = Literal["passed", "failed", "error", "skipped"]


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a build server's report.

    Attributes:
        group: what the checks are listed under, for instance a test case.
        name: of the check in its group.
        state: ``failed`` is a finding, ``error`` is that it could not be checked.
        message: in one line, why; for a passed check it is not shown.
        details: all there is to say, in lines; it may be what a program printed.
        seconds: how long it took, where that means anything.
    """

    group: str
    name: str
    state: State
    message: str = ""
    details: str = ""
    seconds: float | None = None


def require_junit_path(path: Path) -> None:
    """UsageError where a JUnit file cannot stand there; to be called before the work. What was measured never ends in .xml."""
    if path.suffix != ".xml":
        raise UsageError(f"--junit {path}: a JUnit file is XML: use a name that ends in .xml")
    if path.is_dir():
        raise UsageError(f"--junit {path}: is a directory")
    if not path.parent.is_dir():
        raise UsageError(f"--junit {path}: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"--junit {path}: nothing can be written into {path.parent}")


def write_junit(path: Path, suite: str, checks: Iterable[Check], properties: Mapping[str, str] | None = None) -> None:
    """Write a JUnit file with one suite; a file of that name is replaced. OSError where it cannot be written.

    Format: the one of Jenkins, https://github.com/jenkinsci/xunit-plugin (junit-10.xsd), which GitLab reads as well.
    """
    from junitparser import JUnitXml, TestSuite

    found = TestSuite(printable(suite))
    for name, value in (properties or {}).items():
        found.add_property(printable(name), printable(value))
    found.add_testcases([_test_case(check) for check in checks])
    document = JUnitXml()
    document.add_testsuite(found)
    document.update_statistics()
    write_atomically(path, document.tostring())


def _test_case(check: Check) -> TestCase:
    from junitparser import Error, Failure, Skipped, TestCase

    case = TestCase(printable(check.name), printable(check.group), check.seconds)
    message, details = printable(check.message), printable(check.details)
    if check.state == "passed":
        case.system_out = "\n".join(filter(None, (message, details)))
        return case
    result = {"failed": Failure, "error": Error, "skipped": Skipped}[check.state](message)
    result.text = details
    case.result = [result]
    return case
