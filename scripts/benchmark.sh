#!/usr/bin/env bash
# Installs what the benchmarks need and runs them all, or the named ones: a table of figures, goals and ratios.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

require_lab
install_packages "${lab_packages[@]}" "${benchmark_packages[@]}"
install_python "[test]"
trap give_back EXIT

cd -- "$project"
"$venv/bin/python" -m benchmarks "$@"
