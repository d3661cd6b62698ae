#!/bin/sh
# too-big - a model that one machine of 400 MB cannot hold is refused there, and generates over four of them.
#
#   sh cluster/lab/too-big.sh [--memory 400M,...] [--layers 28] [--tandem FILE] [GENERATE OPTION...]
#
# --memory gives the four machines other limits. --layers makes the model larger, by 18 MB each: 200M,400M,400M,800M hold 44
# layers, though not a quarter each (--split auto). The model is synthesised (its words mean
# nothing; see what it prints as a proof that four machines say what one with enough memory says).
# Station before: cluster/setup.sh. Station after: lab.sh, which makes the machines, and removes them whatever happens.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
cluster=$(cd "$here/.." && pwd) || exit 1
tandem=
memory=400M
layers=28

fail() {
    printf 'too-big: %s\n' "$*" >&2
    exit 1
}

step() {
    printf '==> %s\n' "$*"
}

while [ $# -ge 2 ]; do
    case $1 in
    --memory) memory=$2 ;;
    --layers) layers=$2 ;;
    --tandem) tandem=$2 ;;
    *) break ;;
    esac
    shift 2
done
: "${tandem:=$("$cluster/tandem-run" --which)}"
[ -x "$tandem" ] || exit 1

# Not in /tmp, of which every machine has its own.
work=$(mktemp -d /var/tmp/too-big.XXXXXX) || exit 1
export TANDEM_LAB="/run/tandem-lab-$$"
lab() {
    sh "$here/lab.sh" "$@"
}
trap 'lab down; rm -rf "$work"' EXIT
trap 'exit 1' INT TERM

# generate [TANDEM_RUN_OPTION...] -- OPTION... - what it says on standard error is kept, without what mpirun adds.
generate() {
    options=
    while [ "$1" != -- ]; do
        options="$options $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # words
    lab run --tandem "$tandem" $options generate -m "$model" -p 'Once upon a time' -n 24 --temp 0.8 --seed 4 "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    status=$?
    grep -E '^(worker|coordinator|tandem|rank|loaded| +[0-9])' "$work/err"
    return $status
}

model=$work/big.gguf
step "a model of $((layers * 18)) MB"
"$tandem" synth --family llama --layers "$layers" --embd 1280 --heads 20 --heads-kv 4 --ff 3584 --type q8_0 \
    --seed 1 -o "$model" || exit 1

step "four machines, 1 Gbit/s between them"
lab up 4 --rate 1gbit --memory "$memory" || exit 1

step "one of them cannot hold it"
generate --hosts n1 -- "$@"
[ $? -eq 3 ] || fail "n1 alone should have refused"

step "four of them can"
generate -- -v "$@" || fail "the four ended with status $?"
mv "$work/out" "$work/four"
cat "$work/four"

step "each stayed inside its limit"
lab status
lab status | awk 'NR > 1 && $NF > 0 { exit 1 }' || fail "the kernel had to kill"

step "the same words come from this host, which has memory enough"
"$tandem" generate -q -m "$model" -p 'Once upon a time' -n 24 --temp 0.8 --seed 4 "$@" | cmp - "$work/four" ||
    fail "the words differ"
