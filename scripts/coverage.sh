#!/usr/bin/env bash
# Measures which branches of autotest/ a tier of tests reaches, in subprocesses, too. Arguments go to scripts/test.sh.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

export COVERAGE_FILE=$project/build/coverage/data
mkdir -p -- "${COVERAGE_FILE%/*}"
rm -f -- "$COVERAGE_FILE"*
failed=0
RUN_UNDER_COVERAGE=yes "$project/scripts/test.sh" "$@" || failed=$?
cd -- "$project"
"$venv/bin/coverage" combine --quiet
"$venv/bin/coverage" report --skip-covered --sort=miss
exit "$failed"
