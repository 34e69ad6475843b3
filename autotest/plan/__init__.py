"""From lists of parameters to the tree of test cases, walked lazily, set-up first."""
