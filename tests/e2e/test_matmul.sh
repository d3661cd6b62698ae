#!/bin/sh
# test_matmul - products by OpenBLAS: the same bits for any number of ranks, stages and threads, and the same text.
#
#   sh test_matmul.sh TANDEM TOOLS
#
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# As many as the smallest context of the models here.
ids=$(awk 'BEGIN { srand(7); for (i = 0; i < 250; i++) printf "%s%d", i ? "," : "", int(rand() * 256) }')

# hashes RANKS OPTION...
hashes() {
    on=$1
    shift
    tandem_on "$on" logits -q -m "$file" --ids "$ids" --hash "$@"
}

# same NAME COMMAND...
same() {
    name=$1
    shift
    "$@"
    if [ "$status" -eq 0 ] && cmp -s "$work/want" "$work/out"; then
        ok "$what, $name"
    else
        not_ok "$what, $name" "status $status, or the hashes differ"
    fi
}

# compare FILE NAME
compare() {
    file=$1
    what="OpenBLAS, $2"
    hashes 0 --matmul blas --threads 1
    check "$what, runs" [ "$status" -eq 0 ]
    mv "$work/out" "$work/want"
    same "2 threads" hashes 0 --matmul blas --threads 2
    same "3 stages, 2 threads" hashes 0 --matmul blas --stages 3 --threads 2
    for ranks in 2 3; do same "$ranks ranks" hashes $ranks --matmul blas --threads 1; done
}

for type in F32 F16 BF16; do
    model "llama-$type" type=$type
    compare "$made" "llama $type"
done
# family NAME WHAT - a file of the test data.
family() {
    if family_file=$(data "families/$1.gguf"); then
        compare "$family_file" "$2"
    else
        skip "OpenBLAS, $2" "no families/$1.gguf in TANDEM_TEST_DATA"
    fi
}
family qwen3moe "a mixture of experts"
family gemma2 "sliding windows"
family deepseek2-lite "latent attention"

file=$work/llama-F32.gguf
what="auto"
for isa in generic avx2; do
    export TANDEM_ISA=$isa
    hashes 0 --matmul "$([ $isa = generic ] && echo blas || echo packed)"
    [ "$status" -eq 0 ] || continue # this CPU may have no avx2
    mv "$work/out" "$work/want"
    same "with $isa" hashes 0 --matmul auto --chunk 256
done
unset TANDEM_ISA

# The two agree on the text, whose choices are not that close.
tandem generate -q -m "$file" -p "a" -n 24 --temp 0
cp "$work/out" "$work/want"
what="a text"
same "is the same by OpenBLAS" tandem generate -q -m "$file" -p "a" -n 24 --temp 0 --matmul blas
finish
