"""``python -m autotest``."""

import sys

from autotest.cli import main

sys.exit(main())
