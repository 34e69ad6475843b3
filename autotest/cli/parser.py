"""The parser of each command: short usage, help that fits a terminal, and errors that name the nearest of what there is."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from autotest.config.values import nearest
from autotest.errors import EXIT_USAGE, printable

GENERAL = "general options"  # the group of what every command has: the last one in the help


class HelpFormatter(argparse.HelpFormatter):
    """Usage without the options, which are listed below it anyway; an option's value is named once."""

    def __init__(self, prog: str, **more: Any) -> None:
        super().__init__(prog, **{"max_help_position": 28, **more})

    def _format_usage(self, usage: str | None, actions: Iterable[argparse.Action], groups: Any, prefix: str | None) -> str:
        actions = list(actions)
        positionals = [action for action in actions if not action.option_strings]
        text = super()._format_usage(usage, positionals, [], prefix)
        return text if len(positionals) == len(actions) else text.replace(self._prog, f"{self._prog} [OPTION ...]", 1)

    def add_argument(self, action: argparse.Action) -> None:
        """argparse forgets that commands are indented, and puts the text of the longest ones on a line of its own."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length = max(self._action_max_length, *(len(name) + 4 for name in action.choices))

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        value = self._format_args(action, self._get_default_metavar_for_optional(action))
        return f"{', '.join(action.option_strings)} {value}"

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """Each line on its own; an example is not broken, so that it can be copied."""
        return "\n".join(
            indent + line if line.startswith("example: ") else super(HelpFormatter, self)._fill_text(line, width, indent)
            for line in text.splitlines()
        )


class Parser(argparse.ArgumentParser):
    """Of the program, and of each of its commands."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**{"formatter_class": HelpFormatter, "add_help": False, **more})
        self.general = self.add_argument_group(GENERAL)
        self.general.add_argument("-h", "--help", action="help", help="show this help and exit")

    def format_help(self) -> str:
        self._action_groups.sort(key=lambda group: group is self.general)
        return super().format_help()

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse's; but what a command does not know is an error of its own, which knows its options."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self._refuse(unknown)
        return found, unknown

    def _refuse(self, unknown: Sequence[str]) -> NoReturn:
        given = [argument.partition("=")[0] for argument in unknown if argument.startswith("-") and argument != "--"]
        if not given:
            self.error(f"unexpected argument {', '.join(map(repr, unknown))}")
        known = [option for option in self._option_string_actions if option.startswith("--")]
        self.error(f"unknown option {', '.join(option + nearest(option, known, 0.7) for option in given)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        if isinstance(action, argparse._SubParsersAction):
            raise argparse.ArgumentError(None, f"unknown command {value!r}{nearest(value, choices)}")
        like = nearest(str(value), choices)
        raise argparse.ArgumentError(action, f"invalid choice: {value!r}{like}: expected {', '.join(choices)}")

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_USAGE, f"error: {printable(message)}\n{self.prog} --help says what there is\n")
