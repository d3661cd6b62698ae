#!/bin/sh
# man-page - tandem.1, made from what --help says: the program's page by help2man, and a section for each command.
#
#   sh cluster/man-page.sh TANDEM OUT
#
# Station before: the built program. Station after: cmake --install.
set -u

tandem=$1
out=$2
sections=$(mktemp) || exit 1
trap 'rm -f "$sections"' EXIT

# The commands stand indented under "Commands:". Their help is laid out for a terminal and stays so.
"$tandem" --help | awk '/^Commands:/ { on = 1; next } !NF { on = 0 } on { print $1 }' | while read -r command; do
    printf '[tandem %s]\n.nf\n' "$command"
    "$tandem" "$command" --help | sed 's/\\/\\\\/g; s/-/\\-/g; s/^\([.'"'"']\)/\\\&\1/' || exit 1
    printf '.fi\n\n'
done >"$sections"
printf '[see also]\n.BR mpirun (1),\n.BR srun (1).\nLaunching on clusters: tandem-run --help.\n' >>"$sections"
help2man --no-info --section 1 --name 'one language model across many machines, one behind another' \
    --include "$sections" --output "$out" "$tandem"
