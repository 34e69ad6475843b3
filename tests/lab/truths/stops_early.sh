#!/bin/sh
# A known truth: a generator that ends in order after two seconds, however long it was to send. $1 is softmoon, its
# arguments follow.
exec timeout --foreground --preserve-status --signal=INT 2 "$@"
