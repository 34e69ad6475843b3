"""What a measurement kind says of its parameters, and the test case that a full combination of them makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from autotest.config.quantities import Quantity


@dataclass(frozen=True)
class Parameter:
    """One axis of the matrix: in ``tests.conf`` a list, in a test case one value.

    Attributes:
        name: singular, as the test case knows it.
        key: plural, as ``tests.conf`` knows it; ``older_keys`` are accepted too.
        parse: text of one list entry to a value; raises ValueError with what would be right.
        names_files: values may name files, so ``parse`` also takes the folder that relative paths count from.
        default: the list where the key is absent; None when the key is required.
        applies: given the values of the parameters before this one, whether it exists at all; where it
            does not, its value is None.
        show: a value as the user wrote it.
        implied: given the same, the value that a case amounts to where the parameter does not exist; None: it has none.
        usual: a value of which nothing is said to the user where there is no other.
        quantity: how its values are written where they are numbers, or most of them: then a list may hold ranges, each number
            of which goes through ``parse``, and ``quantity.read`` gives what a user compares a value with.
    """

    name: str
    key: str
    parse: Callable[..., Any]
    older_keys: tuple[str, ...] = ()
    default: tuple[Any, ...] | None = None
    applies: Callable[[Mapping[str, Any]], bool] | None = None
    show: Callable[[Any], str] = str
    names_files: bool = False
    usual: Any = None
    quantity: Quantity | None = None
    implied: Callable[[Mapping[str, Any]], Any] | None = None


@dataclass(frozen=True)
class Setting:
    """A single value of a section of ``tests.conf``; ``default`` None means that it is required."""

    name: str
    parse: Callable[[str], Any]
    default: Any = None


@dataclass(frozen=True)
class Rule:
    """Why some combinations of the named parameters are left out of the matrix."""

    parameters: tuple[str, ...]
    excludes: Callable[..., bool]
    reason: str


@dataclass(frozen=True)
class Exclude:
    """What a user leaves out of the valid cases, and why: those that meet all ``tests``.

    Each test is of one parameter, whose name is its key: it is given a case up to that parameter, or beyond. It may look at
    those before it only where the parameter has ``applies``.
    """

    tests: Mapping[str, Callable[[Case], bool]]
    reason: str


class Case(Mapping[str, Any]):
    """A test case, or the beginning of one: parameter names to values, in the order of the tree.

    It is read-only and hashable; ``values`` alone tells two cases of one measurement kind apart.
    """

    __slots__ = ("names", "values_")

    def __init__(self, names: tuple[str, ...], values: tuple[Any, ...]) -> None:
        self.names = names
        self.values_ = values

    def __getitem__(self, name: str) -> Any:
        try:
            return self.values_[self.names.index(name)]
        except (ValueError, IndexError):
            raise KeyError(name) from None

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self.names[: len(self.values_)])

    def __len__(self) -> int:
        return len(self.values_)

    def __hash__(self) -> int:
        return hash(self.values_)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Case) and self.names == other.names and self.values_ == other.values_

    def prefix(self, depth: int) -> Case:
        """The case up to its first ``depth`` parameters."""
        return Case(self.names, self.values_[:depth])

    def __repr__(self) -> str:
        return f"Case({', '.join(f'{name}={value!r}' for name, value in self.items())})"


@dataclass(frozen=True)
class Section:
    """One section of ``tests.conf``: the lists that span a matrix, and the single values that hold for all of it.

    ``file`` is where it was read from, for what is found wrong with it later; ``excludes`` is what users leave out of
    it: with ``exclude`` there, or on the command line.
    """

    name: str
    lists: Mapping[str, tuple[Any, ...]]
    settings: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    file: Path = Path("tests.conf")
    excludes: tuple[Exclude, ...] = ()
