#!/bin/sh
# A known truth: a generator that takes three latency samples a second. $1 is softmoon, $2 the program, its arguments follow.
softmoon=$1 program=$2
shift 2
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
cp "$(dirname "$program")"/*.lua "$folder"
sed -i 's/^local SAMPLES_PER_SECOND, .*/local SAMPLES_PER_SECOND, MAX_SAMPLES = 3, 2000000/' "$folder/load-task.lua"
"$softmoon" "$folder/$(basename "$program")" "$@"
