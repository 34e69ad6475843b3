"""Result files: names, commit and done-check of trials, MoonGen output, histograms, accumulation, figures.

Nothing here opens a connection, prints or ends the program. ``names``, ``verdicts`` and ``store`` import neither numpy
nor pandas nor matplotlib, so that asking what is done stays cheap.
"""
