#!/bin/sh
# demo - set up, then let a line of one coordinator and three workers tell a story.
#
#   sh cluster/demo.sh
#
# Station before: cluster/setup.sh (packages, build). Station after: the program itself, which streams the story to
# standard output and then says on standard error who did what.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
sh "$top/cluster/setup.sh" || exit
# shellcheck source=mpi_env.sh
. "$top/cluster/mpi_env.sh"

echo "==> mpirun: one coordinator and three workers tell a story"
prompt='Once upon a time'
printf '%s' "$prompt"
exec mpirun --oversubscribe -n 4 "$top/build/release/tandem" generate \
    -m "$top/cluster/models/demo-q8_0.gguf" -p "$prompt" -n 120 --temp 0
