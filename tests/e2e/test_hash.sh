#!/bin/sh
# test_hash - the same bits of every score, whatever the line: ranks, stages, threads, chunks, company, order of blocks.
#
#   sh test_hash.sh TANDEM TOOLS ISA
#
# One instruction set a call: different ones may differ in the last bits, so each is compared with itself.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

isa=$3
case $isa in
avx2) flags='avx2 fma f16c' ;;
avx512) flags='avx512f avx512bw avx512vl avx512dq avx512_vnni' ;;
amx) flags='avx512f avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16' ;;
*) flags= ;;
esac
for f in $flags; do
    if ! grep -qw "$f" /proc/cpuinfo; then
        skip "the same bits with $isa" "this CPU has no $f"
        finish
    fi
done
export TANDEM_ISA="$isa"

# 300 positions: more than a tile of attention (256), no multiple of a block (32) or of a chunk.
ids=$(awk 'BEGIN { srand(7); for (i = 0; i < 300; i++) printf "%s%d", i ? "," : "", int(rand() * 256) }')

# same NAME COMMAND... - the command prints the hashes of the reference.
same() {
    name=$1
    shift
    "$@"
    if [ "$status" -ne 0 ]; then
        not_ok "$what, $name" "status $status"
    elif ! cmp -s "$work/want" "$work/out"; then
        not_ok "$what, $name" "the hashes differ; first at position $(diff "$work/want" "$work/out" | sed -n '2s/< //p')"
    else
        ok "$what, $name"
    fi
}

# hashes RANKS OPTION... - 0 ranks: without mpirun.
hashes() {
    on=$1
    shift
    tandem_on "$on" logits -q -m "$file" --ids "$ids" --hash --kv "$kv" "$@"
}

# with_block_seed SEED COMMAND...
with_block_seed() {
    export TANDEM_BLOCK_SEED="$1"
    shift
    "$@"
    unset TANDEM_BLOCK_SEED
}

reference() {
    hashes 0 --threads 1 --chunk 512
    if [ "$status" -eq 0 ] && [ "$(sort -u -k 2 "$work/out" | wc -l)" -ge 290 ]; then
        mv "$work/out" "$work/want"
        return
    fi
    not_ok "$what" "no reference: status $status, or rows repeat"
    return 1
}

# One thread where threads are not the question: on a busy machine two of them wait for each other.
compare_in_one_process() {
    same "2 threads" hashes 0 --threads 2
    for chunk in 1 7 64; do same "chunk $chunk" hashes 0 --chunk $chunk --threads 1; done
    same "3 stages in one process" hashes 0 --stages 3 --threads 1
    same "beside 3 others" hashes 0 --beside 3 --threads 1
    same "beside 3 others, 3 stages, chunk 64, 2 threads" hashes 0 --beside 3 --stages 3 --chunk 64 --threads 2
    for seed in 1 2 3; do
        same "blocks in random order $seed" with_block_seed $seed hashes 0 --beside 3 --chunk 64 --threads 1
    done
}

compare_under_mpirun() {
    for ranks in 1 2 3 5; do same "$ranks ranks" hashes $ranks; done
    same "3 ranks, beside 3 others, chunk 7, 2 threads, blocks in random order" \
        with_block_seed 4 hashes 3 --beside 3 --chunk 7 --threads 2
}

# compare FILE KV NAME
compare() {
    file=$1
    kv=$2
    what="$isa, $3, kv $kv"
    reference || return
    compare_in_one_process
    compare_under_mpirun
}

# compare_wires FILE NAME - one stage has no hop; of three, the hops are the same however they are made.
compare_wires() {
    file=$1
    kv=f16
    for wire in bf16 q8_0; do
        what="$isa, $2, wire $wire"
        reference || return
        same "one stage as with f32" hashes 0 --wire $wire
        mv "$work/want" "$work/exact"
        hashes 0 --stages 3 --wire $wire --threads 1
        mv "$work/out" "$work/want"
        if cmp -s "$work/want" "$work/exact"; then
            not_ok "$what, 3 stages" "the scores are those of f32: nothing was rounded"
        fi
        same "3 stages, beside 3 others, chunk 7" hashes 0 --stages 3 --wire $wire --beside 3 --chunk 7 --threads 1
        same "4 ranks, chunk 64" hashes 4 --wire $wire --chunk 64
    done
}

for type in F32 F16 Q8_0 Q4_0; do
    model "llama-$type" type=$type
    compare "$made" f32 "llama $type"
done
compare "$work/llama-F32.gguf" f16 "llama F32"
compare "$work/llama-F32.gguf" q8_0 "llama F32"
compare_wires "$work/llama-F32.gguf" "llama F32"
model gpt2-Q8_0 family=gpt2 type=Q8_0
compare "$made" f16 "gpt2 Q8_0"
finish
