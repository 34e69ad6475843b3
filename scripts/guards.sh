#!/usr/bin/env bash
# Runs the guards on the code: format, lint, types, floors, shell scripts, spelling. Their rules are in pyproject.toml.
# With --lua as the first argument the Lua programs, too, which needs Debian's package lua-check.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

install_python "[docs,guards,test]"
cd -- "$project"
failed=()

# $1: the guard's name, then its command.
guard() {
    local name=$1 output
    if ! output=$("${@:2}" 2>&1); then
        printf '%s\n' "$output"
        failed+=("$name")
    fi
}

guard "ruff format" "$venv/bin/ruff" format --quiet --check --diff .
guard ruff "$venv/bin/ruff" check --quiet .
guard mypy "$venv/bin/mypy"
guard import-linter "$venv/bin/lint-imports"
guard shellcheck "$venv/bin/shellcheck" --external-sources --source-path=SCRIPTDIR scripts/*.sh .ci/run
guard codespell "$venv/bin/codespell"
if [ "${1:-}" = --lua ]; then
    guard luacheck luacheck --quiet moonprogs
fi
if [ ${#failed[@]} -ne 0 ]; then
    say "guards failed: ${failed[*]}. \"ruff format\" and \"ruff check --fix\" of .venv/bin mend much of what they find" >&2
    exit 1
fi
say "guards passed"
