#!/bin/sh
# scaling - how does a line scale? Bench over 1 .. N workers, over message sizes and over emulated wires: CSV and plots.
#
#   sh cluster/scaling.sh [OPTION...] [-- TANDEM-RUN OPTION...]
#     --workers N     up to so many workers (default: the CPUs of this machine, 2 to 8)
#     --threads N     threads of each worker (default: 1, so that a worker more is a CPU more; 0: tandem's choice)
#     --model FILE    the model that all lines share (default: a synthesised tinyllama-1.1b in q8_0)
#     --out FOLDER    where scaling.csv and the plots go (default: scaling-results)
#     --tandem FILE   the program (default: the one that cluster/tandem-run finds)
#     --quick         a small model and few repetitions: a minute on a laptop, for a first look
#     --no-plots      only the CSV
#   Behind "--" stands what cluster/tandem-run wants for a cluster: -- --hostfile hosts --iface eth1
#
# Four experiments, named in the first column of the CSV:
#   strong   the same model on 1 .. N workers
#   weak     a model that grows with the line: so many layers for each worker
#   sizes    two workers, prompts and groups of many sizes, so that messages of many sizes travel
#   wire     the same over emulated wires; the column "wire" names them
# The other columns are those of tandem bench --csv. Station before: tandem bench. Station after: cluster/plot-scaling.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
top=$(cd "$here/.." && pwd) || exit 1
# shellcheck source=mpi_env.sh
. "$here/mpi_env.sh"

usage='usage: sh cluster/scaling.sh [--quick] [--workers N] [--threads N] [--model FILE] [--out FOLDER]
                             [--tandem FILE] [--no-plots] [-- TANDEM-RUN OPTION...]'
tandem=
model=
out=scaling-results
threads=1
workers=
quick=
plots=yes

fail() {
    printf 'scaling: %s\n' "$*" >&2
    exit 1
}

is_number() {
    case $1 in '' | *[!0-9]*) return 1 ;; esac
}

while [ $# -gt 0 ]; do
    case $1 in
    --workers | --threads | --model | --out | --tandem)
        [ $# -ge 2 ] || fail "$1 wants a value; $usage"
        case $1 in
        --workers) workers=$2 ;;
        --threads) threads=$2 ;;
        --model) model=$2 ;;
        --out) out=$2 ;;
        --tandem) tandem=$2 ;;
        esac
        shift
        ;;
    --quick) quick=yes ;;
    --no-plots) plots= ;;
    --)
        shift
        break
        ;;
    *) fail "unknown option $1; $usage" ;;
    esac
    shift
done

cpus=$(nproc 2>/dev/null || echo 2)
if [ -z "$workers" ]; then
    workers=$cpus
    [ "$workers" -ge 2 ] || workers=2
    [ "$workers" -le 8 ] || workers=8
fi
is_number "$workers" || fail "--workers wants a number, got '$workers'"
[ "$workers" -ge 1 ] || fail "--workers wants one at least"
is_number "$threads" || fail "--threads wants a number, got '$threads'"
if [ -z "$tandem" ] && ! tandem=$("$here/tandem-run" --which 2>/dev/null); then
    tandem=$top/build/release/tandem
    sh "$here/setup.sh" || exit 1
fi
[ -x "$tandem" ] || fail "$tandem is no program"
mkdir -p "$out" || exit 1
# Absolute, because the other ranks may stand elsewhere.
out=$(cd "$out" && pwd) || exit 1
csv=$out/scaling.csv

if [ -n "$quick" ]; then
    shape='--family llama --layers 8 --embd 512 --heads 8 --heads-kv 4 --ff 1408'
    layers_each=4
    speed='--pp 256 --tg 8 --seqs 32 --repeat 5'
    sizes='--pp 1,16,64,192 --tg 8 --seqs 1,8 --chunk 192 --repeat 5'
    wires='50us,1gbit'
else
    shape='--preset tinyllama-1.1b'
    layers_each=8
    speed='--pp 512 --tg 32 --seqs 1,32 --repeat 5'
    sizes='--pp 1,4,16,64,256,512 --tg 32 --seqs 1,2,4,8 --chunk 512 --repeat 9'
    wires='20us,10gbit 50us,1gbit'
fi

# synth FILE SHAPE... - unless it is there already.
synth() {
    file=$1
    shift
    [ -s "$file" ] || "$tandem" synth -q "$@" --type q8_0 --seed 1 -o "$file" || exit 1
}

work=$(mktemp -d) || exit 1
made=
clean_up() {
    # shellcheck disable=SC2086 # one word a file
    rm -rf "$work" $made
}
trap clean_up EXIT
trap 'exit 1' INT TERM
: >"$work/all.csv"

# bench EXPERIMENT WORKERS WIRE MODEL OPTION... - its rows, with the first three in front, to the CSV.
# TANDEM-RUN OPTIONs are in $run_options, a word each.
bench() {
    experiment=$1
    n=$2
    wire=$3
    file=$4
    shift 4
    printf '==> %s, %d worker(s)%s\n' "$experiment" "$n" "${wire:+, wire $wire}"
    [ -z "$wire" ] || set -- "$@" --link-emulate "$wire"
    [ "$threads" -eq 0 ] || set -- "$@" --threads "$threads"
    # shellcheck disable=SC2086 # options are words
    "$here/tandem-run" --tandem "$tandem" $run_options --workers "$n" bench -q -m "$file" --csv - "$@" >"$work/one.csv" ||
        fail "tandem bench failed"
    awk -v experiment="$experiment" -v n="$n" -v wire="\"$wire\"" -v OFS=, '
        NR == 1 { print "experiment,workers,wire", $0; next }
        { print experiment, n, wire, $0 }' "$work/one.csv" >>"$work/all.csv"
}
run_options=$*

begin_s=$(date +%s)
if [ -z "$model" ]; then
    model=$out/strong.gguf
    made="$made $model"
    # shellcheck disable=SC2086 # options are words
    synth "$model" $shape
fi

n=1
while [ "$n" -le "$workers" ]; do
    # shellcheck disable=SC2086 # options are words
    bench strong "$n" '' "$model" $speed
    grown=$out/weak-$n.gguf
    made="$made $grown"
    # shellcheck disable=SC2086 # options are words
    synth "$grown" $shape --layers $((n * layers_each))
    # shellcheck disable=SC2086 # options are words
    bench weak "$n" '' "$grown" $speed
    rm -f "$grown"
    n=$((n + 1))
done

two=2
[ "$workers" -ge 2 ] || two=1
# shellcheck disable=SC2086 # options are words
bench sizes $two '' "$model" $sizes
for wire in $wires; do
    # shellcheck disable=SC2086 # options are words
    bench wire $two "$wire" "$model" $sizes
done

# One header. A comma in a wire's name is inside quotes.
awk 'NR == 1 || !/^experiment,/' "$work/all.csv" >"$csv" || exit 1
printf '==> %s, in %d s\n' "$csv" $(($(date +%s) - begin_s))
[ -z "$plots" ] || sh "$here/plot-scaling" "$csv" "$out"
