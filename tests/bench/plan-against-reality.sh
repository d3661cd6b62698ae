#!/bin/sh
# plan-against-reality - is what a plan says true? Lines of one, two and three workers on this machine: the decode rates
# and the memory that were predicted before loading, beside those that were achieved. A benchmark: it prints figures and
# judges nothing, and is no part of the tests.
#
#   sh tests/bench/plan-against-reality.sh [--rounds N] [--seqs N,...] [--prompt N] [--predict N] [Q8_0.gguf Q4_0.gguf ...]
#     --rounds N   runs of each line, one of each in turn (default: 3)
#     --seqs N,... sequences that decode at once (default: 1,8)
#     --prompt N   tokens of a prompt (default: 128)
#     --predict N  tokens to generate (default: 32)
#   Without files, tinyllama-1.1b is made in q8_0 and q4_0 (1.8 GB, in $TMPDIR).
#
# A run measures the ranks, predicts, loads and decodes, so prediction and achievement are of the same minute; the table
# has medians of them and of the runs' ratios, and each run's own figures go to standard error as it ends. Memory is that
# of the worker for which the plan is furthest off, and how far: 1.00 is all of 3 % + 16 MiB. The load of the machine is
# printed, because a busy one makes figures of no use.
#
# TANDEM    the program (default: build/release/tandem)
# WORKERS   (default: 1 2 3)
# Station before: tandem synth, or any model file. Station inside: tandem bench.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
# shellcheck source=../../cluster/mpi_env.sh
. "$top/cluster/mpi_env.sh"
tandem=${TANDEM:-$top/build/release/tandem}
workers=${WORKERS:-1 2 3}
rounds=3
seqs=1,8
prompt=128
predict=32

fail() {
    printf 'plan-against-reality: %s\n' "$*" >&2
    exit 1
}

usage='usage: sh tests/bench/plan-against-reality.sh [--rounds N] [--seqs N,...] [--prompt N] [--predict N] [MODEL...]'
while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --seqs | --prompt | --predict) [ $# -ge 2 ] || fail "$1 wants a value; $usage" ;;
    --*) fail "unknown option $1; $usage" ;;
    *) break ;;
    esac
    case $1 in
    --rounds) rounds=$2 ;;
    --seqs) seqs=$2 ;;
    --prompt) prompt=$2 ;;
    --predict) predict=$2 ;;
    esac
    shift 2
done
[ -x "$tandem" ] || fail "$tandem is no program; sh cluster/setup.sh builds it, or TANDEM names one"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
if [ $# -eq 0 ]; then
    for type in q8_0 q4_0; do
        "$tandem" synth -q --preset tinyllama-1.1b --type $type -o "$work/$type.gguf" || fail "no model can be made"
    done
    set -- "$work/q8_0.gguf" "$work/q4_0.gguf"
fi

# bench MODEL WORKERS - appends a line for each test and for memory: "MODEL WORKERS TEST PREDICTED ACHIEVED".
bench() {
    mpirun --oversubscribe --bind-to none -n $(($2 + 1)) "$tandem" bench -q -m "$1" --pp "$prompt" --tg "$predict" \
        --seqs "$seqs" --repeat 3 --csv - >"$work/csv" 2>"$work/err" || fail "bench: $(tail -n 1 "$work/err")"
    awk -F, -v model="$(basename "$1" .gguf)" -v workers="$2" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $1 == "run" {
            print model, workers, $at["kind"] $at["n"] "x" $at["seqs"], $at["predicted_tok_s"], $at["tok_s_median"]
        }
        $1 == "stage" {
            need = $at["need_bytes"] / 1048576
            off = $at["rss_bytes"] / 1048576 - need
            share = (off < 0 ? -off : off) / (0.03 * need + 16)
            if (share >= worst) { worst = share; planned = need; held = need + off }
        }
        END { print model, workers, "memory", planned, held, worst }' "$work/csv" >"$work/run"
    cat "$work/run" >>"$work/runs"
    sed 's/^/  /' "$work/run" >&2
}

# report - medians of each line and test.
report() {
    awk '
        function median(list, n, x, i, k, t) {
            n = split(list, x, " ")
            for (i = 2; i <= n; i++)
                for (k = i; k > 1 && x[k] + 0 < x[k - 1] + 0; k--) { t = x[k]; x[k] = x[k - 1]; x[k - 1] = t }
            return n % 2 ? x[(n + 1) / 2] : (x[n / 2] + x[n / 2 + 1]) / 2
        }
        {
            key = $1 " " $2 " " $3
            if (!(key in planned)) order[++count] = key
            planned[key] = planned[key] " " $4
            found[key] = found[key] " " $5
            ratio[key] = ratio[key] " " ($3 == "memory" ? $6 : $5 / $4)
        }
        END {
            form = "| %-24s | %7s | %-8s | %9s | %9s | %6s |\n"
            printf form, "model", "workers", "test", "predicted", "achieved", "ratio"
            printf "|---|---|---|---|---|---|\n"
            for (i = 1; i <= count; i++) {
                key = order[i]
                split(key, word, " ")
                memory = word[3] == "memory"
                printf form, word[1], word[2], memory ? "MiB" : word[3], sprintf("%.1f", median(planned[key])),
                    sprintf("%.1f", median(found[key])),
                    memory ? sprintf("(%.2f)", median(ratio[key])) : sprintf("%.2f", median(ratio[key]))
            }
        }' "$work/runs"
}

printf 'load of the machine before: %s; %s CPUs\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(nproc)"
for _ in $(seq "$rounds"); do
    for model in "$@"; do
        [ -r "$model" ] || fail "$model cannot be read"
        for n in $workers; do bench "$model" "$n"; done
    done
done
printf 'and after: %s\n\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)"
report
