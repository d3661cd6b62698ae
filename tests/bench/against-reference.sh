#!/bin/sh
# against-reference - one stage of tandem against the reference implementation, on the same model file. A benchmark: it
# prints figures and judges nothing, and is no part of the tests.
#
#   sh tests/bench/against-reference.sh [--threads N] [--prompt N] [--predict N] [--pairs N] [--json] MODEL.gguf...
#
# Both read the same prompt of ids with the same number of threads and then decode, one run each in turn, A B A B, so
# that a machine that changes its pace meanwhile changes it for both. For each model: the median of each, and the median
# of the pairs' ratios. The load of the machine is printed, because a busy one makes figures and not even ratios of use.
#
# TANDEM         the program (default: build/release/tandem)
# TANDEM_ISA     as everywhere: the instruction set of tandem's kernels
# TANDEM_ORACLE  the folder of the reference's install.sh (default: ../shared/tools/oracle beside the repository); it is
#                installed into a temporary folder, or, where TANDEM_ORACLE_INSTALLED names one, found there
# Needs node and npm. Station before: tandem synth, or any model file.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
tandem=${TANDEM:-$top/build/release/tandem}
oracle=${TANDEM_ORACLE:-$top/../shared/tools/oracle}
threads=1
prompt=512
predict=64
pairs=5
json=

fail() {
    printf 'against-reference: %s\n' "$*" >&2
    exit 1
}

usage='usage: sh tests/bench/against-reference.sh [--threads N] [--prompt N] [--predict N] [--pairs N] [--json] MODEL...'
while [ $# -gt 0 ]; do
    case $1 in
    --json) json=yes && shift && continue ;;
    --*) [ $# -ge 2 ] || fail "$1: $usage" ;;
    *) break ;;
    esac
    case $1 in
    --threads) threads=$2 ;;
    --prompt) prompt=$2 ;;
    --predict) predict=$2 ;;
    --pairs) pairs=$2 ;;
    *) fail "$1: $usage" ;;
    esac
    shift 2
done
[ $# -ge 1 ] || fail "no model: $usage"
[ -x "$tandem" ] || fail "$tandem is no program; sh cluster/setup.sh builds it, or TANDEM names one"
command -v node >/dev/null || fail 'node is missing: the reference runs in it'

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
trap 'exit 1' INT TERM
installed=${TANDEM_ORACLE_INSTALLED:-$work/reference}
if [ ! -f "$installed/oracle.mjs" ]; then
    [ -f "$oracle/install.sh" ] || fail "no $oracle/install.sh; TANDEM_ORACLE names the folder"
    sh "$oracle/install.sh" "$installed" >"$work/install.log" 2>&1 || {
        cat "$work/install.log" >&2
        fail 'the reference could not be installed'
    }
fi

# The reference's own prompt.
ids=$(awk -v n="$prompt" 'BEGIN { for (i = 0; i < n; i++) printf "%s%d", i ? "," : "", 5 + (i * 7919) % 200 }')

# number FILE KEY - the value of a number in a JSON line.
number() {
    sed -n "s/.*\"$2\": *\\([0-9.eE+-]*\\).*/\\1/p" "$1" | tail -n 1
}

# run_tandem MODEL, run_reference MODEL - "prefill decode", in tokens a second.
run_tandem() {
    "$tandem" generate -m "$1" --ids "$ids" -n $((predict + 1)) --ignore-eos --ctx $((prompt + predict + 16)) \
        --threads "$threads" --json --quiet >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        return 1
    }
    printf '%s %s\n' "$(number "$work/out" prompt_tokens_per_second)" "$(number "$work/out" text_tokens_per_second)"
}
run_reference() {
    (cd "$installed" && node oracle.mjs speed "$1" "$threads" "$prompt" "$predict" 1) >"$work/out" 2>"$work/err" || {
        cat "$work/err" >&2
        return 1
    }
    printf '%s %s\n' "$(number "$work/out" prefill_tok_s)" "$(number "$work/out" decode_tok_s)"
}

# median COLUMN-EXPRESSION FILE
median() {
    awk "{ print $1 }" "$2" | sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

[ -n "$json" ] || {
    printf 'load of the machine: %s; %s CPUs; %s threads; prompt %s, then %s tokens; %s pairs\n' \
        "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(nproc)" "$threads" "$prompt" "$predict" "$pairs"
    printf '%-28s %10s %10s %7s   %10s %10s %7s\n' model 'prefill' 'reference' 'ratio' 'decode' 'reference' 'ratio'
}
for model in "$@"; do
    [ -r "$model" ] || fail "$model cannot be read"
    model=$(cd "$(dirname "$model")" && pwd)/$(basename "$model")
    : >"$work/pairs"
    i=0
    while [ $i -lt "$pairs" ]; do
        a=$(run_tandem "$model") || fail "tandem failed on $model"
        b=$(run_reference "$model") || fail "the reference failed on $model"
        printf '%s %s\n' "$a" "$b" >>"$work/pairs" # prefill, decode of tandem, then of the reference
        i=$((i + 1))
    done
    p=$(median '$1' "$work/pairs") d=$(median '$2' "$work/pairs")
    rp=$(median '$3' "$work/pairs") rd=$(median '$4' "$work/pairs")
    xp=$(median '$1 / $3' "$work/pairs") xd=$(median '$2 / $4' "$work/pairs")
    if [ -n "$json" ]; then
        printf '{"model":"%s","threads":%s,"prompt":%s,"predict":%s,"pairs":%s,"prefill_tok_s":%s,"reference_prefill_tok_s":%s,"prefill_ratio":%s,"decode_tok_s":%s,"reference_decode_tok_s":%s,"decode_ratio":%s}\n' \
            "$(basename "$model")" "$threads" "$prompt" "$predict" "$pairs" "$p" "$rp" "$xp" "$d" "$rd" "$xd"
    else
        printf '%-28s %10.1f %10.1f %7.2f   %10.2f %10.2f %7.2f\n' "$(basename "$model")" "$p" "$rp" "$xp" "$d" "$rd" "$xd"
    fi
done
