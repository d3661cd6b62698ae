#!/bin/sh
# test_families_table - the README's table of families and formats is what the program prints.
#
#   sh tests/test_families_table.sh TANDEM      prints ok or not ok lines; status 1 when one was not ok
#
# The table stands between the lines <!-- families --> and <!-- /families --> of README.md.
# Station before: tandem inspect --families. Station after: tally.awk.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
name="the README's families are those of tandem inspect --families"

"$1" inspect --families >"$work/printed" || {
    echo "not ok $name"
    exit 1
}
awk '$0 == "<!-- /families -->" { inside = 0 } inside { print } $0 == "<!-- families -->" { inside = 1 }' \
    "$top/README.md" >"$work/written"
if [ -s "$work/written" ] && diff "$work/written" "$work/printed"; then
    echo "ok $name"
else
    echo "Put the output of 'tandem inspect --families' between the two markers."
    echo "not ok $name"
    exit 1
fi
