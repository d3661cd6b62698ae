#!/bin/sh
# stream - three of four machines do not have the model's file: what it costs to send them their layers, and to keep them.
#
#   sh cluster/lab/stream.sh [--rate 1gbit] [--layers 28] [--model FILE] [--tandem FILE] [GENERATE OPTION...]
#
# The first start streams the weights from n1, whose file it is, and each machine keeps its slice on a disk of its own; the
# second finds it there. The table has the longest time that one of the three needed to load, the bytes that left n1
# meanwhile, and their share of what its cable could have carried. --layers sizes the model that is synthesised where no
# FILE is given, by 18 MB each. Exit status 1 if the words of the two starts differ.
# Station before: cluster/setup.sh. Station after: lab.sh, which makes the machines, and removes them whatever happens.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
cluster=$(cd "$here/.." && pwd) || exit 1
tandem=
model=
layers=28
rate=1gbit

fail() {
    printf 'stream: %s\n' "$*" >&2
    exit 1
}

usage='usage: sh cluster/lab/stream.sh [--rate 1gbit] [--layers 28] [--model FILE] [--tandem FILE] [GENERATE OPTION...]'
while [ $# -ge 1 ]; do
    case $1 in
    --rate | --layers | --model | --tandem) [ $# -ge 2 ] || fail "$1 wants a value; $usage" ;;
    esac
    case $1 in
    --rate) rate=$2 ;;
    --layers) layers=$2 ;;
    --model) model=$2 ;;
    --tandem) tandem=$2 ;;
    -h | --help) printf '%s\n' "$usage" && exit ;;
    *) break ;;
    esac
    shift 2
done
[ -n "$tandem" ] || tandem=$("$cluster/tandem-run" --which) || exit 1
[ -x "$tandem" ] || fail "there is no program $tandem: sh cluster/setup.sh builds it"
[ -z "$model" ] || [ -f "$model" ] || fail "there is no model file $model"
case $rate in
*gbit) mbit=${rate%gbit} factor=1000 ;;
*mbit) mbit=${rate%mbit} factor=1 ;;
*) mbit= ;;
esac
case $mbit in '' | 0 | *[!0-9]*) fail "--rate wants a whole number and gbit or mbit, got '$rate'" ;; esac
mbit=$((mbit * factor))

# Not in /tmp, of which every machine has its own.
work=$(mktemp -d /var/tmp/stream.XXXXXX) || exit 1
export TANDEM_LAB="/run/tandem-lab-$$"
lab() {
    sh "$here/lab.sh" "$@"
}
trap 'lab down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

if [ -z "$model" ]; then
    model=$work/model.gguf
    "$tandem" synth -q --family llama --layers "$layers" --embd 1280 --heads 20 --heads-kv 4 --ff 3584 --type q8_0 \
        --seed 1 -o "$model" || exit 1
fi
lab up 4 --rate "$rate" --share "$(dirname "$model")" || exit 1
mkdir "$work/cache"
for machine in n2 n3 n4; do
    mkdir "$work/disk-$machine"
    lab on $machine mount --bind "$work/disk-$machine" "$work/cache" || exit 1
done
lab hide "$model" n2 n3 n4 || exit 1

# start WHERE - one line of the table; what it says stays in $work/out.
start() {
    before=$(lab sent n1)
    shown=$1
    shift
    lab run --tandem "$tandem" generate -v -m "$model" -p 'Once upon a time' -n 8 --temp 0 --cache "$work/cache" "$@" \
        >"$work/out" 2>"$work/err" </dev/null ||
        fail "the line ended with status $?: $(grep -E '^(worker|coordinator|tandem)' "$work/err" | head -n 1)"
    after=$(lab sent n1)
    sed -n 's/^rank [234]: .*loaded in \([0-9.]*\) ms.*/\1/p' "$work/err" | sort -n | tail -n 1 |
        awk -v shown="$shown" -v bytes=$((after - before)) -v mbit="$mbit" '
            { printf "%-24s  %7.2f s  %8.1f MB  %5.0f%%\n", shown, $1 / 1e3, bytes / 1e6, bytes * 8 / mbit / 10 / $1 }
            END { exit NR == 0 }' || fail "no worker says how long it loaded: $(cat "$work/err")"
}

printf '\n%s; a file of %d MB\n' "$rate" $(($(wc -c <"$model") / 1000000))
printf '%-24s  %9s  %11s  %s\n' "weights from" "loaded in" "n1 sent" "of the rate"
start "n1, over the network" "$@"
mv "$work/out" "$work/first"
start "each machine's disk" "$@"
cmp "$work/first" "$work/out" || fail "the words differ"
