#!/usr/bin/env bash
# One night of measurements, step by step: what .github/workflows/nightly.yml and .gitlab-ci.yml run. docs/nightly.md explains it.
#
#   scripts/nightly.sh install          what autotest needs, and with the lab what that needs
#   scripts/nightly.sh measure          what of this night is not measured yet
#   scripts/nightly.sh compare          with the last good night, and with the baseline
#   scripts/nightly.sh publish          report.html, summary.md and the JUnit files in nightly/published
#   scripts/nightly.sh conclude         a good night becomes the last good one; the exit code is that of the whole night
#   scripts/nightly.sh night            the four before, whatever comes out of each
#   scripts/nightly.sh accept [NIGHT]   by hand: from now on nights are held against this one (default: the last measured one)
#
# Exit codes: 0 good, 1 something failed or got worse, 2 configuration, 3 the testbed cannot be used.
set -euo pipefail
. "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

# What to set for a testbed of your own; a relative path counts from where this is called.
tests=${NIGHTLY_TESTS:-$project/configs/tests-nightly.conf}
testbed=${NIGHTLY_TESTBED:-$project/autotest.conf}
# Smaller differences are no finding. Shared machines differ that much from night to night; your own testbed will differ less.
thresholds=${NIGHTLY_THRESHOLDS:-achieved=5% loss=2 p50=30% p99=100%}
# The same night has the same name when it is run again; a machine, or testbed, of another name has good nights of its own.
night=${NIGHTLY_NIGHT:-}
machine=${NIGHTLY_MACHINE:-}
timeout=${NIGHTLY_TIMEOUT:-6h}
keep=${NIGHTLY_KEEP:-7}

step=${1:-}
home=$project/nightly
published=$home/published
autotest=$venv/bin/autotest

# What a build server keeps between nights must be in the checkout.
if [ -n "${CI:-}" ]; then
    export XDG_CACHE_HOME=$project/.cache
fi

declare -A titles=([reference]="last good night" [baseline]="baseline")

fail() {
    local code=$1
    shift
    printf '%s\n' "$*" >&2
    if [ "$step" = measure ] && is_of_this_night; then
        printf '%s\n' "$*" >>"$published/measure.log"
    fi
    exit "$code"
}

# Put standard input into a file: whole, or not at all.
write() {
    cat >"$1.new"
    mv -- "$1.new" "$1"
}

# All that is published is of the night that the summary names, so there is a summary from the start. A build server brings back
# what the night before published, and uploads what is there wherever a job ends.
begin_publishing() {
    mkdir -p -- "$published"
    rm -rf -- "${published:?}"/*
    printf '# Night %s: not good\n\nIt ended before it was published: see the log of the job.\n' "$night" |
        write "$published/summary.md"
}

is_of_this_night() { [[ $(head -n 1 -- "$published/summary.md" 2>/dev/null) == "# Night $night: "* ]]; }

is_lab() { grep -q '^\[lab\]' -- "$testbed" 2>/dev/null; }

has_trials() { [ -n "$(find "$1/results" -maxdepth 1 -name 'trial_*.json' -print -quit 2>/dev/null)" ]; }

# Figures of different hardware say nothing about each other. The lab is the machine that this runs on.
name_of_machine() {
    local name=$machine
    if [ -z "$name" ] && is_lab; then
        name="$(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1), $(nproc) CPUs$([ ! -c /dev/kvm ] || echo ', kvm')"
    fi
    printf '%s' "${name:-testbed}" | tr -cs 'A-Za-z0-9._' -
}

# The name of the reference or the baseline of a machine; nothing where there is none.
held_against() {
    local name
    name=$(cat -- "$home/$1-$2" 2>/dev/null || true)
    if [ -n "$name" ] && has_trials "$home/nights/$name"; then
        echo "$name"
    fi
}

code_of() { cat -- "$here/$1.code" 2>/dev/null || echo 1; }

# The first exit code of these steps that is not 0; 1 where one did not come to its end.
verdict() {
    local each code
    for each; do
        code=$(code_of "$each")
        [ "$code" -eq 0 ] || break
    done
    echo "$code"
}

install() {
    set -E
    trap 'exit 3' ERR
    if is_lab; then
        require_lab
        install_packages "${lab_packages[@]}" git
    else
        install_packages python3 python3-venv openssh-client
    fi
    mkdir -p -- "${XDG_CACHE_HOME:-$HOME/.cache}/pip"  # pip wants that to be its user's own
    install_python ""
}

# The tests must measure into a folder that is this night's own: measured beside the last night's, nothing would be measured.
require_own_folder() {
    local outputdirs
    [ -f "$tests" ] || fail 2 "NIGHTLY_TESTS: there is no $tests"
    outputdirs=$(sed -n 's/^[[:space:]]*outputdir[[:space:]]*[=:][[:space:]]*//p' -- "$tests" | sed 's/[[:space:]]*\([;#].*\)\?$//')
    if [ -z "$outputdirs" ] || grep -qv 'nightly/tonight/results/*$' <<<"$outputdirs"; then
        fail 2 "$tests: every section needs outputdir = $home/tonight/results, or the same as a relative path"
    fi
    if [ -e "$home/tonight" ] && [ ! -L "$home/tonight" ]; then
        fail 2 "$home/tonight must be a link to the night that is measured: something was measured there by hand, move it away"
    fi
}

# Trials that another machine measured in this night, before the job was run again, are put aside.
begin_on_this_machine() {
    local number=1 now
    now="$(name_of_machine) $(hostname) $(cat /etc/machine-id 2>/dev/null || true)"
    if [ -e "$results" ] && [ "$(cat -- "$here/measured-by" 2>/dev/null)" != "$now" ]; then
        while [ -e "$here/elsewhere-$number" ]; do number=$((number + 1)); done
        say "another machine measured this night before: its results are in $here/elsewhere-$number"
        mv -- "$results" "$here/elsewhere-$number"
    fi
    mkdir -p -- "$here"
    write "$here/measured-by" <<<"$now"
    write "$here/machine" <<<"$(name_of_machine)"
    git -C "$project" -c safe.directory="$project" rev-parse HEAD 2>/dev/null | write "$here/revision" || rm -f -- "$here/revision"
}

# Under-sent trials are done, and are a finding where a path holds the sender back. A night that has little else tells of a machine
# that was too busy, and nothing can be held against it.
require_valid_trials() {
    local all valid
    all=$(find "$results" -maxdepth 1 -name 'trial_*.json' | wc -l)
    valid=$({ find "$results" -maxdepth 1 -name 'trial_*.json' -exec grep -lE '^ *"verdict": *"valid"' {} + || true; } | wc -l)
    [ $((2 * valid)) -gt "$all" ] ||
        fail 1 "only $valid of $all trials are valid: the machine was busy with something else, or these rates are too high for it"
}

measure() {
    local code=0
    require_own_folder
    begin_on_this_machine
    ln -sfn -- "nights/$night" "$home/tonight"
    say "measuring night $night on $(name_of_machine)"
    # Interrupted at the end of its time, autotest undoes what it did. tee must not end first.
    timeout --foreground --signal=INT --kill-after=2m -- "$timeout" \
        "$autotest" -c "$testbed" test-load-lat-file --stale rerun --junit "$published/run.xml" "$tests" 2>&1 |
        tee --ignore-interrupts -- "$published/measure.log" || code=${PIPESTATUS[0]}
    if [ "$code" -eq 124 ]; then
        fail 1 "not done after $timeout (NIGHTLY_TIMEOUT): the same night run again goes on"
    elif [ "$code" -eq 137 ]; then
        # The system kills with the same code where memory runs out.
        fail 1 "killed: not done after $timeout (NIGHTLY_TIMEOUT) and hung, or out of memory; the next night undoes it"
    elif [ "$code" -eq 0 ] && ! has_trials "$here"; then
        fail 2 "$tests: nothing was measured into $home/tonight/results, which must be the outputdir of every section"
    elif [ "$code" -eq 0 ]; then
        require_valid_trials
    fi
    return "$code"
}

# Compare this night with the one that a pointer names: as text, as JUnit, and in Markdown.
compare_with() {
    local which=$1 other code=0 threshold arguments=()
    other=$(held_against "$which" "$(cat -- "$here/machine")")
    if [ "$other" = "$night" ]; then  # this night was good before: what it was compared with then
        other=$(cat -- "$here/$which" 2>/dev/null || true)
    fi
    if [ -z "$other" ] || ! has_trials "$home/nights/$other"; then
        say "there is no ${titles[$which]} of $(cat -- "$here/machine") to compare with"
        echo "There is no ${titles[$which]} of this machine to compare with." >"$published/compare-$which.md"
        rm -f -- "$here/$which"
        return 0
    fi
    write "$here/$which" <<<"$other"
    if [ "$which" = baseline ] && [ "$other" = "$(cat -- "$here/reference" 2>/dev/null)" ]; then
        say "the baseline is the same night"
        return 0
    fi
    say "comparing with the ${titles[$which]}, $other"
    arguments=(compare "$other/results" "$night/results")
    for threshold in $thresholds; do arguments+=(--threshold "$threshold"); done
    cd -- "$home/nights"
    "$autotest" "${arguments[@]}" --junit "$published/compare-$which.xml" 2>&1 | tee -- "$published/compare-$which.txt" || code=${PIPESTATUS[0]}
    {
        printf '## Compared with the %s, %s\n\n' "${titles[$which]}" "$other"
        printf 'A is of revision %s.\n\n' "$(said_of revision "$other")"
        if [ "$code" -le 1 ]; then  # the same once more, with the same exit code
            "$autotest" "${arguments[@]}" --format markdown || code=$?
        else
            printf '**It could not be compared.**\n\n'
            as_it_is <"$published/compare-$which.txt"
        fi
    } >"$published/compare-$which.md"
    return "$code"
}

compare() {
    local code=0 which each
    rm -f -- "$published"/compare-*
    if has_trials "$here"; then
        for which in reference baseline; do
            each=0
            compare_with "$which" || each=$?
            [ "$each" -le "$code" ] || code=$each
        done
    else
        say "nothing is measured, so there is nothing to compare"
    fi
    return "$code"
}

publish() {
    local code=0
    if has_trials "$here"; then
        "$autotest" report "$results" -o "$published/report.html" || code=$?
        "$autotest" summary "$results" --format markdown >"$published/figures.md" || code=$?
    fi
    summary_of_night | write "$published/summary.md"
    rm -f -- "$published/figures.md"
    [ ! -f "$tests" ] || cp -- "$tests" "$published/tests.conf"
    if [ -n "${GITHUB_STEP_SUMMARY:-}" ]; then
        if [ "$(stat -c %s -- "$published/summary.md")" -lt 1000000 ]; then
            cat -- "$published/summary.md" >>"$GITHUB_STEP_SUMMARY"
        else  # GitHub shows none that is larger than 1 MiB
            { head -n 4 -- "$published/summary.md"; echo "It is too long for this page: see \`summary.md\` among the artifacts."; } >>"$GITHUB_STEP_SUMMARY"
        fi
    fi
    say "published in $published"
    return "$code"
}

# Text in Markdown, without any meaning in it; an empty line would end it.
as_it_is() {
    echo '<pre>'
    sed -e 's/&/\&amp;/g' -e 's/</\&lt;/g' -e 's/^$/ /'
    echo '</pre>'
}

said_of() { cat -- "$home/nights/$2/$1" 2>/dev/null || echo unknown; }

summary_of_night() {
    local which
    if [ "$(verdict measure compare)" -eq 0 ]; then
        printf '# Night %s: good\n\n' "$night"
    else
        printf '# Night %s: not good\n\n' "$night"
    fi
    printf 'On %s, revision %s. Exit codes: measured %s, compared %s.\n' \
        "$(said_of machine "$night")" "$(said_of revision "$night")" "$(code_of measure)" "$(code_of compare)"
    has_trials "$here" || printf '\nNothing was measured, so there is nothing to compare.\n'
    for which in reference baseline; do
        if [ -f "$published/compare-$which.md" ]; then
            echo
            cat -- "$published/compare-$which.md"
        fi
    done
    if [ -f "$published/figures.md" ]; then
        printf '\n## Figures\n\n'
        cat -- "$published/figures.md"
    fi
    if [ "$(code_of measure)" -ne 0 ] && [ -f "$published/measure.log" ]; then
        printf '\n## The end of the log\n\n'
        tail -n 30 -- "$published/measure.log" | as_it_is
    fi
}

conclude() {
    local code on
    code=$(verdict measure compare publish)
    if [ "$code" -eq 0 ]; then
        on=$(cat -- "$here/machine")
        write "$home/reference-$on" <<<"$night"
        if [ -z "$(held_against baseline "$on")" ]; then
            write "$home/baseline-$on" <<<"$night"
            say "night $night is the baseline of $on"
        fi
        say "night $night is good: the next one is compared with it"
    else
        say "night $night is not good: the last good one stays what the next one is compared with"
    fi
    forget_old_nights
    return "$code"
}

# Only the newest nights are kept, and those that any machine's nights are held against.
forget_old_nights() {
    local name number=0
    while read -r name; do
        number=$((number + 1))
        if [ "$number" -gt "$keep" ] && ! grep -qsxF -e "$name" -- "$home"/reference-* "$home"/baseline-*; then
            rm -rf -- "${home:?}/nights/$name"
        fi
    done < <(ls -t -- "$home/nights")
}

accept() {
    local name=${1:-} on
    if [ -z "$name" ]; then
        name=$(cat -- "$home/last" 2>/dev/null || true)
        if [ "$name" = "$night" ] && [ -n "$night" ]; then  # a job that is run again accepts no result of its own
            say "night $night accepted the one before it already"
            return
        fi
    fi
    [ -n "$name" ] || fail 2 "there is no night to accept"
    require_name "$name"
    has_trials "$home/nights/$name" || fail 2 "night $name cannot be accepted: nothing of it is here"
    on=$(cat -- "$home/nights/$name/machine")
    rm -f -- "$home/nights/$name/reference" "$home/nights/$name/baseline"
    write "$home/baseline-$on" <<<"$name"
    write "$home/reference-$on" <<<"$name"
    say "nights on $on are held against night $name from now on"
}

night() {
    local each code=0
    export NIGHTLY_NIGHT=$night
    for each in measure compare publish conclude; do
        code=0
        "$0" "$each" || code=$?
    done
    return "$code"
}

require_name() {
    [[ $1 =~ ^[A-Za-z0-9][A-Za-z0-9._-]*$ ]] || fail 2 "NIGHTLY_NIGHT: a night's name has letters, digits, dots and dashes: $1"
}

# What each of these steps came to is noted, however it ends: conclude and the summary need it.
ended() {
    local code=$?
    case $step in measure | compare | publish)
        echo "$code" | write "$here/$step.code"
        [ ! -L "$home/tonight" ] || rm -f -- "$home/tonight" ;;
    esac
    give_back
    exit "$code"
}

case $step in
    install | accept) ;;
    measure | night) night=${night:-$(date +%F)} ;;
    compare | publish | conclude) night=${night:-$(cat -- "$home/last" 2>/dev/null || date +%F)} ;;
    *) sed -n 's/^#   //p' -- "$0" >&2; exit 2 ;;
esac
here=$home/nights/$night
results=$here/results
case $step:$night in
    install: | accept:) ;;  # by hand they are of no night; a build server begins with them
    *)
        require_name "$night"
        case $step in
            install | measure | night)
                begin_publishing
                rm -f -- "$here"/*.code ;;
            accept | compare | publish)
                is_of_this_night || begin_publishing ;;
        esac ;;
esac
case $step in measure | compare | publish)
    mkdir -p -- "$here"
    rm -f -- "$here/$step.code"
esac
[ "$step" != measure ] || write "$home/last" <<<"$night"
trap ended EXIT
[[ $keep =~ ^[0-9]+$ ]] || fail 2 "NIGHTLY_KEEP: how many nights are kept, not $keep"
# A night of which nothing is measured is published without it.
if [ "$step" != install ] && [ ! -x "$autotest" ] && { [ "$step" != publish ] || has_trials "$here"; }; then
    fail 3 "there is no $autotest: scripts/nightly.sh install makes it"
fi
"$@"
