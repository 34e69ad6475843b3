"""``python -m autotest``."""

import sys

from autotest.cli.program import program

sys.exit(program())
