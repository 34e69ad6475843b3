"""Completion in bash, zsh and fish: the code that a shell sources, and the answer to each Tab.

The shells ask through the environment variable ``_ARGCOMPLETE``; only then argcomplete is imported. Nothing but completions is
ever written: what goes wrong on the way, like a file that cannot be read, gives no completions.
"""

from __future__ import annotations

import argparse
import itertools
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from autotest.cli import words
from autotest.errors import EXIT_FAILED, EXIT_OK

SHELLS = ("bash", "zsh", "fish")
WHERE = """\
bash: eval "$(autotest completion bash)", in ~/.bashrc
zsh: eval "$(autotest completion zsh)", in ~/.zshrc
fish: autotest completion fish | source, in ~/.config/fish/config.fish"""

_REQUESTED = "_ARGCOMPLETE"
# argcomplete's own function takes zsh's $BUFFER, in which the quote that a word begins with is missing: in words it is there.
_ZSH = r"""(( ${+functions[compdef]} )) || { autoload -Uz compinit && compinit -i }
_autotest() {
    local IFS=$'\013' line="${(j: :)words[1,CURRENT-1]} $QIPREFIX$IPREFIX$PREFIX"
    local -a completions unfinished
    completions=($(IFS="$IFS" COMP_LINE="$line" COMP_POINT="${#line}" _ARGCOMPLETE=1 _ARGCOMPLETE_SHELL=zsh \
        _ARGCOMPLETE_SUPPRESS_SPACE=1 ${words[1]} 8>&1 9>/dev/null 1>/dev/null 2>&1 </dev/null))
    [[ "${completions[1]-}" =~ '([^\\]):' && "${match[1]}" == [=/:] ]] && unfinished=(-S '')
    completions=("${completions[@]/%:/}")
    _describe autotest completions -o nosort "${unfinished[@]}"
}
compdef _autotest autotest"""


class Line(NamedTuple):
    """What is on the line before the word that is completed, and whether that one begins with a quote."""

    before: list[str]
    is_quoted: bool


Complete = Callable[[str, Line], Iterable[str]]
"""From what is written of a word, and the line, to the words that it may become."""


def completion(options: argparse.Namespace) -> int:
    """Print the code that a shell has to source."""
    import argcomplete

    # Without -o default: where autotest knows that nothing fits, bash does not offer all files.
    code = argcomplete.shellcode(["autotest"], shell=options.shell, complete_arguments=["-o", "nospace"])
    print(_ZSH if options.shell == "zsh" else code.strip())
    return EXIT_OK


def is_requested() -> bool:
    """Whether a shell has started this process to learn how a line may go on."""
    return _REQUESTED in os.environ


def complete(parser: argparse.ArgumentParser) -> NoReturn:
    """Tell the shell how its line may go on, and end the process."""
    try:
        _finder(parser)(parser, always_complete_options=False)
    finally:
        os._exit(EXIT_FAILED)  # argcomplete has ended it with 0 where all is well


def _finder(parser: argparse.ArgumentParser) -> Any:
    import argcomplete

    class Finder(argcomplete.CompletionFinder):  # type: ignore[misc]  # without annotations
        """Options where one is begun, or where there is nothing else; no file names but where a file is expected."""

        def collect_completions(self, active_parsers: Any, parsed_args: Any, cword_prefix: str) -> list[str]:
            found: list[str] = super().collect_completions(active_parsers, parsed_args, cword_prefix)
            wants_value = any(action.option_strings for action in active_parsers[-1].active_actions)
            if found or cword_prefix or wants_value:
                return found
            options: list[str] = self._get_option_completions(active_parsers[-1], "--")
            return options

        def quote_completions(self, completions: list[str], *more: Any) -> list[str]:
            quoted: list[str] = super().quote_completions(completions, *more)
            for word in quoted:  # else zsh shows the description None
                self._display_completions.setdefault(word, "")
            return quoted

    _attach(parser)
    return Finder()


def _attach(parser: argparse.ArgumentParser) -> None:
    """Give the options of all commands their completers, by the names that they have in all of them."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                _attach(subparser)
        elif not action.choices:
            found = _COMPLETERS.get(action.dest) or (_files() if action.type is Path else _nothing)
            action.completer = partial(_safely, found)  # type: ignore[attr-defined]


def _safely(found: Complete, prefix: str, **more: Any) -> list[str]:
    try:
        return list(found(prefix, _line()))
    except Exception:  # noqa: BLE001  # whatever a file holds: a Tab shows what it can, and never an error
        return []


def _line() -> Line:
    from argcomplete.lexers import split_line

    quote, _, _, before, _ = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))
    return Line(before, bool(quote))


# -- what the words of a line say --------------------------------------------------------------------------


def _sources(before: list[str]) -> list[Path]:
    """The tests.conf and output directories on the line, else the ./tests.conf that the commands take then."""
    found = []
    for previous, word in itertools.pairwise(before):
        path = Path(_path_of(os.path.expanduser(word)))
        if previous not in ("-c", "--config", "-o", "--output") and (
            path.is_dir() or (path.suffix == ".conf" and path.is_file())
        ):
            found.append(path)
    return found or [path for path in [Path("tests.conf")] if path.is_file()]


def _path_of(source: str) -> str:
    """The path of an output directory or a tests.conf, without the conditions behind it."""
    return source if os.path.exists(source) else source.partition(":")[0]


def _after(before: list[str], *options: str) -> list[str]:
    """What was given with an option."""
    return [word for previous, word in itertools.pairwise(before) if previous in options]


def _there_is(before: list[str]) -> dict[str, list[str]]:
    return words.there_is(_sources(before), _after(before, "-S", "--section"))


# -- completers --------------------------------------------------------------------------------------------


def _nothing(prefix: str, line: Line) -> Iterable[str]:
    return ()


def _files(*suffixes: str) -> Complete:
    """Files whose names end so, all of them where nothing is said; and the folders on the way to them."""
    return lambda prefix, line: words.paths(prefix, lambda name: name.endswith(suffixes or ("",)))


def _list(known: Callable[[Line], Iterable[str]]) -> Complete:
    return lambda prefix, line: words.next_of_list(prefix, known(line))


def _source(prefix: str, line: Line) -> Iterable[str]:
    path, colon, _ = prefix.partition(":")
    path = os.path.expanduser(path)
    if colon and os.path.exists(path):
        head, colon, condition = prefix.rpartition(":")
        found = words.conditions(condition, words.there_is([Path(path)]), ("=",))
        return [f"{head}{colon}{text}" for text in found]
    return _files(".conf")(prefix, line)


def _conditions(prefix: str, line: Line) -> Iterable[str]:
    return words.conditions(prefix, _there_is(line.before), quoted=line.is_quoted)


def _sections(prefix: str, line: Line) -> Iterable[str]:
    given = _after(line.before, "-S", "--section")
    return [name for name in words.section_names(path for path in _sources(line.before) if path.is_file()) if name not in given]


def _metrics(line: Line) -> Iterable[str]:
    from autotest.report.metrics import METRICS

    return [metric.name for metric in METRICS.values() if metric.better]


def _thresholds(prefix: str, line: Line) -> Iterable[str]:
    return [f"{name}=" for name in _metrics(line)]


def _verdicts(line: Line) -> Iterable[str]:
    from autotest.results.verdicts import Verdict

    return map(str, Verdict)


def _plot_kinds(line: Line) -> Iterable[str]:
    from autotest.report.plots import KINDS

    return KINDS


def _plot_formats(line: Line) -> Iterable[str]:
    from autotest.report.plots import FORMATS

    return FORMATS


def _keys_of_testbed(prefix: str, line: Line) -> Iterable[str]:
    from dataclasses import fields

    from autotest.config.testbed import GuestConfig, HostConfig, LoadGenConfig

    sections = {"host": HostConfig, "guest": GuestConfig, "loadgen": LoadGenConfig}
    return [f"{name}.{key.name}=" for name, section in sections.items() for key in fields(section)]


_COMPLETERS: dict[str, Complete] = {
    "config": _files(".conf"),
    "files": _files(".conf"),
    "tests": _files(".conf"),
    **dict.fromkeys(("sources", "a", "b"), _source),
    "select": _conditions,
    "exclude": _conditions,
    "section": _sections,
    "accept": _list(_verdicts),
    "kind": _list(_plot_kinds),
    "format": _list(_plot_formats),
    "by": _list(lambda line: _there_is(line.before)),
    "side_by_side": lambda prefix, line: _there_is(line.before),
    "metric": _list(_metrics),
    "threshold": _thresholds,
    "interface": lambda prefix, line: words.INTERFACES,
    "machine": lambda prefix, line: words.MACHINES[1:],
    "set": _keys_of_testbed,
    "script": _files(".py"),
    "junit": _files(".xml"),
    **dict.fromkeys(("disk", "qemu_path", "ssh_config"), _files()),
}
"""By the option's name in the parsed arguments; those with choices have their own."""
