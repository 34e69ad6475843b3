#!/bin/sh
# A known truth: as stops_early.sh, but it does not say for how long it sent, as with rate control in hardware.
timeout --foreground --preserve-status --signal=INT 2 "$@" | grep --line-buffered -v 'Test frames:'
