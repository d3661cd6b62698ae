#!/bin/sh
# test_kv_full - a KV pool that is too small for all sequences: the same texts, over ranks too; equal beginnings are
# computed once; what never fits is refused.
#
#   sh test_kv_full.sh TANDEM TOOLS
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# generate RANKS OPTION... - ten sequences: three are short, three begin alike.
generate() {
    on=$1
    shift
    begin=1
    for i in $(seq 2 70); do begin="$begin,$i"; done
    for i in 1 2 3; do set -- "$@" --ids "$((i * 7)),20,21"; done
    for i in 1 2 3; do set -- "$@" --ids "$begin,$((i * 5))"; done
    for i in 1 2 3 4; do set -- "$@" --ids "$((i * 9)),30,31,32,33,34,35,36,37,38"; done
    tandem_on "$on" generate -v --json -m "$model" --ctx 160 -n 60 --temp 0.8 --seed 3 --ignore-eos "$@"
    [ "$status" -eq 0 ] || not_ok "generate on $on ranks with $*" "status $status"
    for line in 1 2 3 4 5 6 7 8 9 10; do json ids "$line"; done >"$work/ids"
}

preemptions() {
    sed -n 's/^cache: .* \([0-9]*\) preemptions.*/\1/p' "$work/err"
}

for family in llama gemma2; do
    if ! model=$(data "families/$family.gguf"); then
        skip "a small KV pool, $family" "families/$family.gguf is absent (TANDEM_TEST_DATA)"
        continue
    fi
    generate 0
    cp "$work/ids" "$work/want"
    check "$family: ten sequences have texts" [ "$(tr -cd , <"$work/want" | wc -c)" -gt 500 ]
    for ranks in 0 2 4; do
        generate "$ranks" --kv-tokens 192
        check "$family, $ranks ranks: a small KV pool gives the same" cmp -s "$work/ids" "$work/want"
        check "$family, $ranks ranks: somebody had to make room" [ "$(preemptions)" -gt 0 ]
    done
    generate 2 --slots 1
    check "$family: one after the other gives the same" cmp -s "$work/ids" "$work/want"
    check "$family: the second of those that begin alike is told what was in the cache" [ "$(json cached_tokens 5)" = 70 ]
    check "$family: the first is not" [ "$(json cached_tokens 4)" = 0 ]
done

if model=$(data families/llama.gguf); then
    tandem generate -m "$model" --ids 1,2,3 -n 100 --ctx 128 --kv-tokens 64
    check "a request that never fits ends with status 3" [ "$status" -eq 3 ]
    check "... and one line that says what to do" grep -q 'never fits into a KV pool of 64 tokens.*--kv-tokens' "$work/err"
fi
finish
