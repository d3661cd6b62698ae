#!/bin/sh
# line-efficiency - does a line use its machine? Lines of several stages against one stage on the same cores.
#
#   sh cluster/line-efficiency.sh [--pairs N] [--tandem FILE] [--models FOLDER] [FORMAT...]
#     --pairs N        alternating runs of each pair, A B A B (default: 3)
#     --tandem FILE    the program (default: build/release/tandem)
#     --models FOLDER  where tinyllama-1.1b-FORMAT.gguf is made, or found (default: a temporary one)
#     FORMAT           q8_0, q4_0 (default: both)
#
# For a machine of two cores: the lines have two workers of one thread, or as said. Each row of the table gives the
# medians of A and B, their ratio, and what it should be at least (a bubble: at most). A stage reads its weights once a
# batch, so P stages with P x B sequences stand against one stage with B. Station before: tandem bench.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
top=$(cd "$here/.." && pwd) || exit 1
# shellcheck source=mpi_env.sh
. "$here/mpi_env.sh"
usage='usage: sh cluster/line-efficiency.sh [--pairs N] [--tandem FILE] [--models FOLDER] [q8_0|q4_0 ...]'
pairs=3
tandem=$top/build/release/tandem
models=
formats=

fail() {
    printf 'line-efficiency: %s\n' "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    case $1 in
    --pairs | --tandem | --models)
        [ $# -ge 2 ] || fail "$1 wants a value; $usage"
        case $1 in
        --pairs) pairs=$2 ;;
        --tandem) tandem=$2 ;;
        --models) models=$2 ;;
        esac
        shift
        ;;
    q8_0 | q4_0) formats="$formats $1" ;;
    *) fail "unknown option $1; $usage" ;;
    esac
    shift
done
case $pairs in '' | *[!0-9]* | 0) fail "--pairs wants a number from 1 on, got '$pairs'" ;; esac
[ -x "$tandem" ] || fail "there is no program $tandem: sh cluster/setup.sh builds it"
: "${formats:= q8_0 q4_0}"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
[ -n "$models" ] || models=$work

# bench COLUMN WORKERS THREADS OPTION... - one figure of one run.
bench() {
    column=$1
    workers=$2
    threads=$3
    shift 3
    mpirun --oversubscribe --bind-to none -n $((workers + 1)) "$tandem" bench -q -m "$file" --threads "$threads" \
        --repeat 3 --csv - "$@" >"$work/csv" 2>"$work/err" || fail "bench $*: $(tail -n 1 "$work/err")"
    awk -F, -v column="$column" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $1 == "run" { print $at[column] }' "$work/csv"
}

median() {
    sort -n "$1" | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'
}

row() {
    printf '| %-4s | %-60s | %8s | %8s | %6s | %6s |\n' "$@"
}

# pair WANT NAME A-WORKERS A-THREADS A-OPTIONS B-WORKERS B-THREADS B-OPTIONS
pair() {
    : >"$work/a"
    : >"$work/b"
    for _ in $(seq "$pairs"); do
        # shellcheck disable=SC2086 # options are words
        bench tok_s_median "$3" "$4" $5 >>"$work/a"
        # shellcheck disable=SC2086
        bench tok_s_median "$6" "$7" $8 >>"$work/b"
    done
    a=$(median "$work/a")
    b=$(median "$work/b")
    row "$format" "$2" "$(printf '%.1f' "$a")" "$(printf '%.1f' "$b")" \
        "$(awk -v a="$a" -v b="$b" 'BEGIN { printf "%.2f", a / b }')" ">=$1"
}

# against WANT NAME REFERENCE OPTIONS - the reference's own line of two servers was measured once.
against() {
    : >"$work/a"
    for _ in $(seq "$pairs"); do
        # shellcheck disable=SC2086 # options are words
        bench tok_s_median 2 1 $4 >>"$work/a"
    done
    a=$(median "$work/a")
    row "$format" "$2" "$(printf '%.1f' "$a")" "$3" "$(awk -v a="$a" -v b="$3" 'BEGIN { printf "%.2f", a / b }')" ">=$1"
}

# bubble WANT NAME OPTIONS
bubble() {
    : >"$work/a"
    for _ in $(seq "$pairs"); do
        # shellcheck disable=SC2086 # options are words
        bench bubble 2 1 $3 >>"$work/a"
    done
    row "$format" "$2" "$(awk -v a="$(median "$work/a")" 'BEGIN { printf "%.1f%%", 100 * a }')" "" "" "<=$1"
}

# sweep NAME OPTIONS - the chunk that was chosen, against the best of those by hand.
sweep() {
    best=0
    best_chunk=
    for chunk in 64 96 128 192 256; do
        # shellcheck disable=SC2086 # options are words
        got=$(bench tok_s_median 2 1 $2 --chunk "$chunk")
        awk -v a="$got" -v b="$best" 'BEGIN { exit !(a > b) }' || continue
        best=$got
        best_chunk=$chunk
    done
    pair 0.95 "$1: own chunk against --chunk $best_chunk" 2 1 "$2" 2 1 "$2 --chunk $best_chunk"
}

row format "pair" A B ratio want
printf '|---|---|---|---|---|---|\n'
for format in $formats; do
    file=$models/tinyllama-1.1b-$format.gguf
    [ -s "$file" ] || "$tandem" synth -q --preset tinyllama-1.1b --type "$format" --seed 1 -o "$file" || exit 1
    pair 0.95 "decode: 2 workers, 16 sequences; 1 worker x 2 threads, 8" 2 1 "--pp 0 --tg 32 --seqs 16" 1 2 "--pp 0 --tg 32 --seqs 8"
    pair 0.97 "decode, 1 sequence: 2 workers; 1 worker x 1 thread" 2 1 "--pp 0 --tg 32 --seqs 1" 1 1 "--pp 0 --tg 32 --seqs 1"
    pair 0.92 "prompt of 2047: 2 workers; 1 worker x 2 threads" 2 1 "--pp 2047 --tg 0" 1 2 "--pp 2047 --tg 0"
    pair 0.85 "prompt of 512: 2 workers; 1 worker x 2 threads" 2 1 "--pp 512 --tg 0" 1 2 "--pp 512 --tg 0"
    sweep "prompt of 512, equal stages" "--pp 512 --tg 0"
    sweep "prompt of 512, stages of 2:1" "--pp 512 --tg 0 --split 15,7"
    bubble 8% "bubble, 16 sequences" "--pp 0 --tg 32 --seqs 16"
    bubble 12% "bubble, 32 sequences, hops of 1 ms" "--pp 0 --tg 32 --seqs 32 --link-emulate 1ms"
    pair 0.80 "decode, 32 sequences: 4 workers on these cores; 2 workers" 4 1 "--pp 0 --tg 32 --seqs 32" 2 1 "--pp 0 --tg 32 --seqs 32"
    [ "$format" = q4_0 ] || continue
    against 2.4 "decode, 1 sequence: 2 workers; the reference's RPC line" 7.6 "--pp 0 --tg 32 --seqs 1"
    against 6.0 "prompt of 512: 2 workers; the reference's RPC line" 46 "--pp 512 --tg 0"
    against 5.0 "decode, 8 sequences: 2 workers; the reference's RPC line" 22 "--pp 0 --tg 32 --seqs 8"
done
