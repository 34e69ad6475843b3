"""One module per measurement kind: its parameters, its rules, its stages, and how one trial is run."""
