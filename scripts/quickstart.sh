#!/usr/bin/env bash
# From a bare Debian 12 to load-latency curves of a real QEMU guest: installs what is missing, brings the lab up, runs
# tests.conf, draws the plots, prints the table, takes the lab down. Run again, it measures nothing that is done.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

become_root "$@"
require_lab
install_packages "${lab_packages[@]}"
install_python ""

cd -- "$project"
autotest=$venv/bin/autotest

# shellcheck disable=SC2329  # the trap below calls it
leave() {
    local status=$?
    if [ -n "${lab_used:-}" ]; then
        say "taking the lab down"
        "$autotest" lab down >/dev/null || true
    fi
    give_back
    exit "$status"
}
trap leave EXIT

plan=$("$autotest" test-load-lat-file --dry-run tests.conf)
status=0
if [[ $plan == *", 0 to do" ]]; then
    say "everything in tests.conf is done already"
else
    say "bringing the lab up"
    lab_used=yes
    "$autotest" lab up >/dev/null
    say "running tests.conf"
    "$autotest" test-load-lat-file tests.conf || status=$?
    [ "$status" -le 1 ] || exit "$status"  # interrupted or unusable: 1 is trials that failed, the others are shown
fi
"$autotest" acc-load-lat-file tests.conf
say "drawing the plots and the page"
"$autotest" plot tests.conf
"$autotest" report tests.conf
"$autotest" summary tests.conf
exit "$status"
