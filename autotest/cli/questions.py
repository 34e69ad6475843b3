"""Questions on a terminal, each with what is proposed as the answer to Enter; without a terminal, what is proposed is taken."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from autotest.errors import UsageError, printable

_WIDTH = 80

Parse = Callable[[str], Any]


@dataclass
class Questions:
    """Answers are texts that their parser takes.

    Attributes:
        asks: whether there is somebody to ask.
        given: answers that were given beforehand, by name.
        missing: what could not be answered, for the user: nobody was asked, and nothing could be proposed.
        hinted: the questions whose hint was shown: who is asked again has read it.
    """

    asks: bool
    given: Mapping[str, str] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    hinted: set[str] = field(default_factory=set)

    def answer(self, name: str, question: str, proposal: str | None, parse: Parse, *, need: str, hint: str = "") -> str:
        """The answer; an empty text where there is none, which is then in ``missing``.

        Args:
            name: by which it may have been given.
            question: for the user, without a question mark or default.
            proposal: what Enter stands for; None where there is none, and an empty one where the answer may be empty.
            parse: raises ValueError, with what would be right, for what is no answer.
            need: how to give it, and what it is, where nobody is asked.
            hint: what helps to answer.

        Raises:
            UsageError: the answer that was given is none.
            EOFError: the user has ended the input.
        """
        if name in self.given:
            return self._given(name, parse)
        if not self.asks:
            if proposal is None:
                self.missing.append(need)
            return proposal or ""
        if hint and name not in self.hinted:
            print(f"\n{wrapped(hint)}")
            self.hinted.add(name)
        while True:
            text = _read(f"{question}{f' [{proposal}]' if proposal else ''}: ").strip()
            if not text and proposal is not None:
                return proposal
            try:
                parse(text)
            except ValueError as error:
                print(wrapped(str(error), "  "))
                continue
            return text

    def _given(self, name: str, parse: Parse) -> str:
        try:
            parse(self.given[name])
        except ValueError as error:
            raise UsageError(f"{name}: {error}") from None
        return self.given[name]

    def require_answers(self) -> None:
        """Raises UsageError with all that is missing."""
        if self.missing:
            raise UsageError(_needs(self.missing))


def _needs(missing: Sequence[str]) -> str:
    head = "this cannot be proposed, and nobody is asked without a terminal or with --yes; give"
    return "\n".join([head, *(f"  {each}" for each in missing)])


def wrapped(text: str, indent: str = "") -> str:
    """The text for a terminal, in lines of at most 80 characters."""
    return textwrap.fill(
        printable(text), _WIDTH, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _read(prompt: str) -> str:
    """A line from the terminal; readline, where there is one, lets it be edited."""
    with suppress(ImportError):
        import readline  # noqa: F401  # input() uses it once it is there
    sys.stdout.flush()
    try:
        return input(printable(prompt))
    except (EOFError, KeyboardInterrupt):
        print()  # what follows begins a line
        raise
