"""``python -m autotest``."""

import sys

from autotest.cli import program

sys.exit(program())
