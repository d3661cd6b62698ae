#!/bin/sh
# hops - is --link-emulate true? What a hop costs over real interfaces of 1 Gbit/s, and emulated on one machine.
#
#   sh cluster/lab/hops.sh [--rate 1gbit] [--delay 0us] [--tandem FILE]
#
# The same bench runs over three machines of the lab and then as three workers here. For each size of message the table
# has the smaller median of the two hops between workers (both go over the same kind of wire), by how much the lab
# differs, and what the wire alone would take. The lab's cables have no length, hence --delay 0us.
# Station before: cluster/setup.sh. Station after: lab.sh and tandem bench.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
cluster=$(cd "$here/.." && pwd) || exit 1
# shellcheck source=../mpi_env.sh
. "$cluster/mpi_env.sh"
tandem=
rate=1gbit
delay=0us

fail() {
    printf 'hops: %s\n' "$*" >&2
    exit 1
}

while [ $# -ge 2 ]; do
    case $1 in
    --rate) rate=$2 ;;
    --delay) delay=$2 ;;
    --tandem) tandem=$2 ;;
    *) fail "unknown option $1; usage: sh cluster/lab/hops.sh [--rate 1gbit] [--delay 0us] [--tandem FILE]" ;;
    esac
    shift 2
done
: "${tandem:=$("$cluster/tandem-run" --which)}"
[ -x "$tandem" ] || exit 1
case $rate in
*gbit) mbit=$((${rate%gbit} * 1000)) ;;
*mbit) mbit=${rate%mbit} ;;
*) fail "--rate wants a number and gbit or mbit, got '$rate'" ;;
esac

# Not in /tmp, of which every machine has its own.
work=$(mktemp -d /var/tmp/hops.XXXXXX) || exit 1
export TANDEM_LAB="/run/tandem-lab-$$"
trap 'sh "$here/lab.sh" down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
"$tandem" synth -q --family llama --layers 3 --embd 1024 --heads 16 --heads-kv 4 --ff 1024 --type q8_0 --seed 1 \
    -o "$work/small.gguf" || exit 1
sh "$here/lab.sh" up 3 --rate "$rate" || exit 1

# bench NAME COMMAND... - the hops between workers, as "BYTES MICROSECONDS" lines in $work/NAME.hops.
bench() {
    name=$1
    shift
    "$@" --tandem "$tandem" ${emulate:+--per-host 3} bench -q -m "$work/small.gguf" --pp 16,64,256 --tg 8 --seqs 1 \
        --chunk 256 --repeat 5 --threads 1 --csv - ${emulate:+--link-emulate "$emulate"} \
        >"$work/csv" 2>"$work/err" </dev/null || fail "bench ended with status $?: $(cat "$work/err")"
    awk -F, '
        NR == 1 { for (i = 1; i <= NF; i++) column[$i] = i; next }
        $1 == "hop" && $column["from"] > 0 && $column["to"] > 0 && $column["us_median"] != "" {
            b = $column["bytes"]; us = $column["us_median"]
            if (!(b in best) || us + 0 < best[b]) best[b] = us + 0 }
        END { for (b in best) print b, best[b] }' "$work/csv" | sort -n >"$work/$name.hops"
}
emulate=
bench lab sh "$here/lab.sh" run
emulate=$delay,$rate
bench emulated "$cluster/tandem-run"

printf '\nmicroseconds of a hop at %s\n%10s  %8s  %14s  %11s  %10s\n' "$rate" bytes lab "--link-emulate" "lab differs" \
    "wire alone"
join "$work/lab.hops" "$work/emulated.hops" | awk -v mbit="$mbit" '
    { printf "%10d  %8.0f  %14.0f  %+10.0f%%  %10.0f\n", $1, $2, $3, ($2 / $3 - 1) * 100, $1 * 8 / mbit }
    END { exit NR == 0 }' || fail "the two runs have no size in common"
