#!/bin/sh
# A known truth: a generator that claims to have sent a tenth more than it did. $1 is softmoon, its arguments follow.
"$@" | awk '
    function more(field) { $field = int(1.1 * $field) }
    /TX/ { for (i = 1; i <= NF; i++) if ($i == "total") { more(i + 1); more(i + 4) } }
    /Test frames: sent/ { for (i = 1; i <= NF; i++) if ($i == "sent") more(i + 1) }
    { print; fflush() }'
