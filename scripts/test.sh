#!/usr/bin/env bash
# Installs what the tests need and runs all of them, the end-to-end ones in the lab included. Arguments go to pytest.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

require_lab
install_packages "${lab_packages[@]}" cpio chromium
install_python "[test]"
trap give_back EXIT

cd -- "$project"
"$venv/bin/python" -m pytest "$@"
