#!/usr/bin/env bash
# Installs what the tests need and runs them, in three tiers. Arguments go to pytest; without any the guards on the code run, too.
#   scripts/test.sh --fast    what needs nothing but Python: no root, and nothing is installed outside .venv
#   scripts/test.sh           also what needs root and other programs, and each capability once in the lab
#   scripts/test.sh --all     also every combination, many examples of each property, and the emulated host
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

tier=default
case "${1:-}" in
    --fast | --all) tier=${1#--} && shift ;;
esac
long="long ones: every combination, many examples, the emulated host (scripts/test.sh --all, 60 minutes)"
lua=(--lua) options=()
case $tier in
    fast)
        together="not default and not all" alone="" lua=() options=(--durations=0 --durations-min=1) # a test over a second is not fast
        left_out="tests that need root, other programs or more than a second (scripts/test.sh, 12 minutes), and $long"
        ;;
    default) together="not alone and not all" alone="alone and not all" left_out=$long ;;
    all) together="not alone" alone="alone" left_out="nothing" options=(--hypothesis-profile=many) ;;
esac

if [ "$tier" != fast ]; then
    require_lab
    install_packages "${lab_packages[@]}" "${test_packages[@]}" "${benchmark_packages[@]}"
    trap give_back EXIT
fi
install_python "[docs,guards,test]"

cd -- "$project"
failed=0 ran=0
pytest=(pytest)
[ -z "${RUN_UNDER_COVERAGE:-}" ] || pytest=(coverage run -m pytest) # see scripts/coverage.sh

# $1: which tests, $2: how many processes share them, then what else pytest is given.
run_tests() {
    local code=0
    "$venv/bin/python" -m "${pytest[@]}" -m "$1" --numprocesses "$2" --dist worksteal "${options[@]}" "${@:3}" || code=$?
    case $code in
        5) return ;; # none of those that were asked for
        2) exit 2 ;; # interrupted
    esac
    ran=1
    [ $code -eq 0 ] || failed=1
}

[ $# -gt 0 ] || scripts/guards.sh "${lua[@]}" || failed=1
workers=auto
[ "$tier" = fast ] || workers=$(($(nproc) + 1)) # many of these tests wait for a terminal, a connection or a time limit
run_tests "$together" "$workers" "$@"
[ -z "$alone" ] || run_tests "$alone" 0 "$@"
say "left out: $left_out"
[ $ran -eq 1 ] || exit 5
exit $failed
