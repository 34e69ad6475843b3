"""Figures of the synthetic campaign, and what is in them."""

from autotest.report.cases import group_cases
from autotest.report.plots import KINDS, View
from autotest.report.plots.files import Origin, draw_plots
from autotest.report.trials import read_results

NO_VIEW = View()
SMALL = {"machines": ["pcvm"], "vhosts": [True], "reflectors": ["xdp"], "sizes": [60], "samples": 300}


def cases_of(directory, accept=(), **wanted):
    trials = read_results(directory).trials
    chosen = [trial for trial in trials if all(trial.parameters[key] == value for key, value in wanted.items())]
    return group_cases(chosen, accept)


def drawn(cases, kind, view=NO_VIEW, **origin):
    origin = Origin(**{"directory": cases[0].trials[0].directory, **origin})
    ((name, figure),) = draw_plots(cases, [kind], view, origin).items()
    assert name.startswith(KINDS[kind])
    return figure


def panels(figure):
    return figure.subfigs[0].axes


def line(axes, label):
    (found,) = [one for one in axes.get_lines() if one.get_label() == label]
    return found


def bars(axes, label):
    """Rate to lower and upper end of the error bars with that label."""
    found = [one for one in axes.containers if one.get_label() == label]
    segments = [segment for one in found for segment in one.lines[2][0].get_segments()]
    return {float(segment[0][0]): (float(segment[0][1]), float(segment[1][1])) for segment in segments}


def texts(figure):
    """What stands below the panels: entries of the legends, and the caption in one line."""
    below = figure.subfigs[1]
    entries = [text.get_text() for legend in below.legends for text in legend.get_texts()]
    return entries, below.texts[0].get_text().replace("\n", " ")
