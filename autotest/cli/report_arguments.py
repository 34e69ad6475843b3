"""The parsers of the commands that only read results."""

from __future__ import annotations

import argparse
from pathlib import Path

from autotest.cli import reporting
from autotest.cli.options import Adder, add_accept, add_selection, add_sources, share
from autotest.report import plots


def add_report_commands(add: Adder) -> None:
    parser = add("summary", reporting.summary, "Show a table of the results.", "autotest summary results")
    add_sources(parser)
    _add_format(parser)
    _add_plot_command(add)
    parser = add(
        "report", reporting.report, "Write a report: one HTML file, with charts and every trial.", "autotest report results"
    )
    add_sources(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="the file (default report.html in the output directory)"
    )


def _add_plot_command(add: Adder) -> None:
    parser = add(
        "plot",
        reporting.plot,
        "Draw the results.",
        "autotest plot results --by vhost --side-by-side interface --select size=60",
    )
    add_sources(parser)
    parser.add_argument(
        "-k",
        "--kind",
        action="append",
        default=[],
        metavar="KIND,...",
        help=f"{', '.join(plots.KINDS)} (default {','.join(plots.DEFAULT_KINDS)}, and guests where their number differs); "
        "may be repeated",
    )
    parser.add_argument(
        "-b",
        "--by",
        action="append",
        default=[],
        metavar="PARAM,...",
        help="one line per value of these parameters; others that differ get panels of their own (default: one line per set-up)",
    )
    parser.add_argument(
        "--side-by-side", default="", metavar="PARAM", help="one panel per value of this parameter, next to each other"
    )
    parser.add_argument("--log", action="store_true", help="a logarithmic y axis also for losses and histograms")
    parser.add_argument(
        "--format",
        action="append",
        default=[],
        metavar="FORMAT,...",
        help=f"{', '.join(plots.FORMATS)} (default {','.join(plots.DEFAULT_FORMATS)}); may be repeated",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="DIRECTORY", help="where the plots go (default: beside the results)")


def add_export_command(add: Adder) -> None:
    parser = add(
        "export",
        reporting.export,
        "Write a table with one row per trial: parameters, verdict, figures.",
        "autotest export results -o trials.csv",
    )
    add_sources(parser)
    parser.add_argument("--per-guest", action="store_true", help="one row per trial and guest, with the figures of that guest")
    parser.add_argument(
        "--format",
        choices=("csv", "json", "parquet"),
        help="default: what the file's name ends in, else csv; docs/export.md describes the columns",
    )
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="instead of standard output; an existing file is replaced"
    )


def add_compare_command(add: Adder) -> None:
    parser = add(
        "compare",
        reporting.compare,
        "Say whether the figures of B differ from those of A; exit code 1 where any is worse.",
        "autotest compare results:interface=bridge results:interface=macvtap --threshold p50=5%",
    )
    for name in ("a", "b"):
        parser.add_argument(
            name,
            metavar=name.upper(),
            help="an output directory or a tests.conf, with :key=value,... behind it a part of it",
        )
    add_selection(parser)
    add_accept(parser)
    parser.add_argument(
        "--metric",
        action="append",
        default=[],
        metavar="NAME,...",
        help="what to compare (default achieved,loss,p50,p99); may be repeated",
    )
    parser.add_argument(
        "--threshold",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="smaller differences do not count: p50=5%% is relative to A, loss=0.5 in the unit (%% of the frames); may be repeated",
    )
    parser.add_argument(
        "--alpha",
        type=share,
        default=0.05,
        metavar="P",
        help="the chance that is taken of finding a difference where there is none, over all comparisons (default 0.05)",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE.xml", help="also write the comparisons as JUnit tests")
    _add_format(parser)


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format",
        choices=("text", "markdown"),
        default="text",
        help="markdown: as GitHub and GitLab show it, what is wrong on top",
    )
