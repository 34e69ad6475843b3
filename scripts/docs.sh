#!/usr/bin/env bash
# Builds docs/ into build/docs; every warning, like a link to nothing, is an error. Needs no root.
# With --external, also asks whether the addresses of other sites still answer.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

install_python "[docs]"

cd -- "$project"
build=("$venv/bin/python" -m sphinx --fail-on-warning --keep-going --quiet --fresh-env --write-all)
"${build[@]}" --builder html docs build/docs
if [ "${1:-}" = --external ]; then
    "${build[@]}" --builder linkcheck docs build/linkcheck
fi
say "open build/docs/index.html"
