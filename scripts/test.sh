#!/usr/bin/env bash
# Installs what the tests need and runs them, the end-to-end ones in the lab included. Arguments go to pytest.
# With --slow as the first one: those on the emulated host (configs/lab-iommu.conf) instead, which are left out otherwise.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

require_lab
install_packages "${lab_packages[@]}" cpio chromium zsh fish
install_python "[docs,test]"
trap give_back EXIT

if [ "${1:-}" = --slow ]; then
    set -- -m slow "${@:2}"
fi
cd -- "$project"
"$venv/bin/python" -m pytest "$@"
