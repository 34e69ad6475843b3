"""The commands that only read results: from output directories, or from the ones that a tests.conf names."""

from __future__ import annotations

import argparse
import logging
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from autotest.config.values import nearest
from autotest.errors import EXIT_FAILED, EXIT_OK, UsageError, printable

if TYPE_CHECKING:
    from autotest.report.cases import Case
    from autotest.report.trials import Results, Trial
    from autotest.results.names import TrialName
    from autotest.results.verdicts import Verdict
    from autotest.run.campaign import Campaign

log = logging.getLogger(__name__)

_SHOWN_COMPLAINTS = 20


class Selected(NamedTuple):
    """What a report is made of.

    Attributes:
        results: all that was read from one directory.
        trials: those of its trials that were selected.
    """

    results: Results
    trials: list[Trial]


def selected(options: argparse.Namespace) -> list[Selected]:
    """What the sources of the command line hold, one entry per directory; what cannot be used is logged by name.

    Of the directories that a tests.conf names, some may hold nothing of it yet: that is logged, too.

    Raises:
        UsageError: a source does not exist or holds no trials, or the selection matches nothing.
        ConfigError: a tests.conf is wrong.
        ResultsError: a newer autotest wrote the results, or a directory cannot be read.
    """
    return [found for found, _ in _selected(options)]


def _selected(options: argparse.Namespace) -> list[tuple[Selected, str]]:
    """:func:`selected`, each with its selection as text, empty for everything."""
    from autotest.report.selection import parse_selection

    found: list[tuple[Selected, str]] = []
    nothing: list[UsageError] = []
    read: dict[tuple[Path, tuple[str, ...] | None], Results] = {}
    for directory, infixes, texts in _sources(options):
        selection = parse_selection(texts, options.exclude)
        of = directory, None if infixes is None else tuple(infixes)
        try:
            if of not in read:  # several sources may be parts of one directory
                read[of] = _read(directory, infixes)
            found.append((Selected(read[of], selection.apply(read[of])), str(selection)))
        except UsageError as error:
            if infixes is None:
                raise
            nothing.append(error)
    if not found:
        raise nothing[0]
    for missing in nothing:
        log.warning("%s", missing)
    return found


def _read(directory: Path, infixes: list[str] | None) -> Results:
    from autotest.report.trials import read_results

    if infixes is not None and not directory.is_dir():
        raise UsageError(f"{directory}: nothing is measured yet: there is no such directory")
    results = read_results(directory, infixes)
    for number, complaint in enumerate(results.complaints):
        log.log(logging.WARNING if number < _SHOWN_COMPLAINTS else logging.DEBUG, "%s: %s", directory, complaint)
    if len(results.complaints) > _SHOWN_COMPLAINTS:
        log.warning("%s: %d more like these; -v shows them", directory, len(results.complaints) - _SHOWN_COMPLAINTS)
    if not results.trials:
        of = "no load latency trials" if infixes is None else "no trials of these test cases"
        others = f"but other files: {results.others}" if results.others else "it is empty"
        hint = "; given itself instead of a tests.conf, all in it counts" if infixes is not None and results.others else ""
        raise UsageError(f"{directory}: holds {of}, {others}{hint}")
    return results


def _sources(options: argparse.Namespace) -> Iterator[tuple[Path, list[str] | None, list[str]]]:
    """Directory, test cases (None: all) and selection of each source."""
    from autotest.cli.campaigns import load_campaign
    from autotest.plan.narrowing import Narrowing
    from autotest.report.selection import split_source

    for text in options.sources or ["tests.conf"]:
        path, texts = split_source(text)
        texts += options.select
        if path.is_dir():
            if options.section:
                raise UsageError(f"{path}: an output directory has no sections: --section is for those of a tests.conf")
            yield path, None, texts
        elif path.is_file():
            campaign = load_campaign([path], narrowing=Narrowing(sections=tuple(options.section)))
            for outputdir in dict.fromkeys(Path(section.settings["outputdir"]) for section in campaign.sections):
                yield outputdir, list(_infixes(campaign, outputdir)), texts
        else:
            raise UsageError(f"{path}: no such output directory, and no such tests.conf")


def _infixes(campaign: Campaign, outputdir: Path) -> Iterator[str]:
    """The test cases whose results go into that directory, in the order of the file that names them."""
    for section in campaign.sections:
        if Path(section.settings["outputdir"]) == outputdir:
            yield from campaign.infixes(section)


def accepted(options: argparse.Namespace) -> frozenset[Verdict]:
    """The verdicts that count like ``valid``. UsageError for what is none, with those that there are."""
    from autotest.results.verdicts import Verdict

    texts = [text.strip() for given in options.accept for text in given.split(",")]
    known = {str(verdict): verdict for verdict in Verdict}
    for text in texts:
        if text not in known:
            raise UsageError(f"--accept {text}: no such verdict{nearest(text, list(known))}; there are {', '.join(known)}")
    return frozenset(known[text] for text in texts)


def summary(options: argparse.Namespace) -> int:
    from autotest.report.markdown import escape
    from autotest.report.summary import count_open_failures, summarise
    from autotest.report.summary_markdown import summarise_in_markdown

    accept = accepted(options)
    sources = selected(options)
    markdown = options.format == "markdown"
    for number, (results, trials) in enumerate(sources):
        if len(sources) > 1:
            title = f"### {escape(str(results.directory))}\n" if markdown else str(results.directory)
            print(printable(f"{chr(10) * bool(number)}{title}"))
        made = (summarise_in_markdown if markdown else summarise)(trials, accept, count_open_failures(results))
        print(printable(made), end="")
        log.debug("%s: %d trials", results.directory, len(trials))
    return EXIT_OK


def export(options: argparse.Namespace) -> int:
    from autotest.report.export import Request, render, tidy
    from autotest.results.files import write_atomically

    form = _export_format(options.format, options.output)
    if options.output:
        _require_free_for_export(options.output, options.sources)
    sources = options.sources or ["tests.conf"]
    asked = (tuple(options.exclude), tuple(options.section))
    request = Request(tuple(sources), tuple(options.select), accepted(options), options.per_guest, *asked)
    content = render(tidy([trials for _, trials in selected(options)], request), form, request)
    if options.output:
        write_atomically(options.output, content)
    elif sys.stdout.isatty():
        print(printable(content.decode()), end="")
    else:  # whatever the terminal's encoding is
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    return EXIT_OK


def _export_format(given: str | None, output: Path | None) -> str:
    from autotest.report.export import FORMATS

    suffix = output.suffix.lstrip(".").lower() if output else ""
    form = given or (suffix if suffix in FORMATS else "csv")
    if form == "parquet" and output is None:
        raise UsageError("--format parquet is nothing for a terminal: name a file for it, like -o trials.parquet")
    return form


def _require_free_for_export(output: Path, sources: list[str]) -> None:
    """An export replaces an export, but nothing that was measured or configured."""
    from autotest.results.names import parse_file_name
    from autotest.results.store import FAILURES_FILE

    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(f"-o {output}: {'is a directory' if output.is_dir() else f'there is no directory {output.parent}'}")
    if parse_file_name(output.name) or output.name == FAILURES_FILE:
        raise UsageError(f"-o {output}: this is the name of a result file, which is not overwritten")
    if any(Path(source).is_file() and output.exists() and output.samefile(source) for source in sources):
        raise UsageError(f"-o {output}: this is what is to be exported")


def plot(options: argparse.Namespace) -> int:
    """Draw, and only then write. UsageError for what there is not, and where one plot would replace another."""
    from autotest.report import plots

    kinds = _named("--kind", options.kind, tuple(plots.KINDS))
    formats = _named("--format", options.format, plots.FORMATS) or plots.DEFAULT_FORMATS
    view = plots.View(tuple(_comma_separated(options.by)), options.side_by_side, options.log)
    accept = accepted(options)
    sources = _by_directory(options)
    if options.output and len(sources) > 1:
        directories = ", ".join(map(str, sources))
        raise UsageError(f"--output {options.output}: plots of {directories} would have the same names there: draw one at a time")
    from autotest.report.cases import group_cases
    from autotest.report.plots.files import (
        Origin,
        default_kinds,
        draw_plots,
        write_plots,
    )

    drawn = []
    for directory, (trials, selections) in sources.items():
        origin = Origin(directory, selections, accept)
        cases = group_cases(trials, accept)
        drawn.append((options.output or directory, draw_plots(cases, kinds or default_kinds(cases, view), view, origin)))
    for directory, figures in drawn:
        for path in write_plots(figures, directory, formats):
            print(path)
    return EXIT_OK


def _by_directory(options: argparse.Namespace) -> dict[Path, tuple[list[Trial], tuple[str, ...]]]:
    """The trials of each output directory that any source selects, and these selections; none where one takes all."""
    trials: dict[Path, dict[TrialName, Trial]] = {}
    selections: dict[Path, list[str]] = {}
    for found, selection in _selected(options):
        directory = found.results.directory
        trials.setdefault(directory, {}).update((trial.name, trial) for trial in found.trials)
        selections.setdefault(directory, []).append(selection)
    return {
        directory: (list(found.values()), tuple(dict.fromkeys(selections[directory])) if all(selections[directory]) else ())
        for directory, found in trials.items()
    }


def _comma_separated(texts: list[str]) -> list[str]:
    return [text.strip() for given in texts for text in given.split(",") if text.strip()]


def _named(option: str, texts: list[str], known: tuple[str, ...]) -> tuple[str, ...]:
    """What is given, each once, in the known order. UsageError for anything else."""
    given = _comma_separated(texts)
    for text in given:
        if text not in known:
            raise UsageError(f"{option} {text}{nearest(text, known)}: there are {', '.join(known)}")
    return tuple(name for name in known if name in given)


def report(options: argparse.Namespace) -> int:
    """Write the HTML report. UsageError where the file cannot be that one."""
    from datetime import datetime

    from autotest.report.page import render_page
    from autotest.results.files import write_atomically

    if options.output and options.output.suffix not in (".html", ".htm"):
        raise UsageError(f"-o {options.output}: a report is an HTML file: use a name that ends in .html")
    if options.output and not options.output.parent.is_dir():
        raise UsageError(f"-o {options.output}: there is no directory {options.output.parent}")
    accept = accepted(options)
    sources = selected(options)
    directories = list(dict.fromkeys(results.directory for results, _ in sources))
    if not options.output and len(directories) > 1:
        raise UsageError(f"the results are in {', '.join(map(str, directories))}: name the report's file, with -o")
    path = options.output or directories[0] / "report.html"
    command = ["autotest", "report", *options.sources]
    given = (("--select", options.select), ("--exclude", options.exclude), ("--section", options.section))
    command += [word for option, texts in given for text in texts for word in (option, text)]
    command += [word for verdict in sorted(accept) for word in ("--accept", verdict)]
    page = render_page(sources, accept, beside=path.parent, made=datetime.now().astimezone(), command=shlex.join(command))
    write_atomically(path, page)
    print(f"{path}: {sum(len(trials) for _, trials in sources)} trials, {len(page) / 1e6:.1f} MB")
    return EXIT_OK


def compare(options: argparse.Namespace) -> int:
    """Exit code 1 where anything is worse in B, or gone."""
    from autotest.report import compare as comparing
    from autotest.report.compare_markdown import describe_in_markdown
    from autotest.report.compare_text import checks, describe
    from autotest.report.junit import require_junit_path, write_junit

    metrics = comparing.parse_metrics(options.metric)
    thresholds = comparing.parse_thresholds(options.threshold, metrics)
    if options.junit:
        require_junit_path(options.junit)
    a, b = (_cases(options, source) for source in (options.a, options.b))
    compared = comparing.compare(comparing.match(a, b), metrics, options.alpha, thresholds)
    if options.format == "markdown":
        print(printable(describe_in_markdown(compared, options.a, options.b)), end="")
    else:
        print(f"A  {options.a}\nB  {options.b}\n{describe(compared)}", end="")
    if options.junit:
        properties = {"A": options.a, "B": options.b, "alpha": f"{options.alpha:g}"}
        properties |= {f"threshold {name}": str(threshold) for name, threshold in thresholds.items()}
        write_junit(options.junit, f"autotest compare {options.a} {options.b}", checks(compared), properties)
    return EXIT_FAILED if compared.is_worse else EXIT_OK


def _cases(options: argparse.Namespace, source: str) -> list[Case]:
    """The test cases of one source."""
    from autotest.report.cases import group_cases

    read = selected(argparse.Namespace(**{**vars(options), "sources": [source]}))
    return group_cases([trial for found in read for trial in found.trials], accepted(options))
