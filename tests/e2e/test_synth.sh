#!/bin/sh
# test_synth - models made from nothing run like any other, and can be made smaller.
#
#   sh test_synth.sh TANDEM TOOLS
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

ids=1,5,300,17,900,44,1000,2,77,650,31,1200

# synth NAME OPTION... - a small model; its path is $work/NAME.gguf.
synth() {
    made=$work/$1.gguf
    shift
    tandem synth --layers 3 --embd 256 --heads 8 --ff 512 --ctx 128 -o "$made" "$@"
}

# hashes MODEL RANKS - the hashes of all rows are in $work/out, one line a position.
hashes() {
    tandem_on "$2" logits -q -m "$1" --ids "$ids" --hash --kv f32
    [ "$status" -eq 0 ] && [ "$(sort -u -k 2 "$work/out" | wc -l)" -eq 12 ]
}

for family in llama gpt2; do
    for type in f32 f16 bf16 q8_0 q4_0; do
        if ! synth "$family-$type" --family $family --type $type; then
            not_ok "synth makes a $family model in $type"
        elif [ "$status" -ne 0 ]; then
            not_ok "synth makes a $family model in $type" "status $status"
        elif ! hashes "$made" 0; then
            not_ok "a synthetic $family model in $type runs" "status $status, or rows repeat"
        else
            ok "a synthetic $family model in $type runs"
        fi
    done
done

synth experts --family llama --type q8_0 --experts 4 --experts-used 2
check "a synthetic model with experts runs" hashes "$made" 0

hashes "$work/llama-q8_0.gguf" 0
mv "$work/out" "$work/want"
hashes "$work/llama-q8_0.gguf" 3
check "a synthetic model has the same bits on a line of three ranks" cmp -s "$work/want" "$work/out"

synth again --family llama --type q8_0 --threads 1
check "the same order makes the same file" cmp -s "$work/llama-q8_0.gguf" "$work/again.gguf"
synth other --family llama --type q8_0 --seed 1
check "another seed makes another file" sh -c "! cmp -s '$work/llama-q8_0.gguf' '$work/other.gguf'"

tandem inspect --json "$work/llama-q4_0.gguf"
shape=
for key in family dimensions.layers dimensions.width dimensions.feed_forward; do
    shape="$shape $(golden "$work/out" $key)"
done
check "inspect reads the shape that was ordered" [ "$shape" = " llama 3 256 512" ]

synth wide --family llama --type q4_0 --vocab 5000 --heads-kv 2
tandem generate -q -m "$made" -p 'Once upon a time' -n 8 --temp 0 --ignore-eos
check "a synthetic model generates" [ "$status" -eq 0 ]
tandem tokenize -m "$made" -p 'Once upon a time'
mv "$work/out" "$work/want"
tandem tokenize -m "$demo_model" -p 'Once upon a time'
check "its tokenizer is that of the demo model" cmp -s "$work/want" "$work/out"

tandem quantize "$work/llama-f32.gguf" "$work/small.gguf" --type q8_0
hashes "$work/small.gguf" 0
mv "$work/out" "$work/want"
hashes "$work/llama-q8_0.gguf" 0
check "quantize and synth agree on q8_0" cmp -s "$work/want" "$work/out"

for type in q4_0 q4_k q6_k; do
    tandem quantize "$work/llama-f16.gguf" "$work/small.gguf" --type $type
    check "quantize writes $type" [ "$status" -eq 0 ]
done

synth bad --family nonsense --type f32
expect_error "an unknown family is wrong use" 1 "'nonsense' is no family"
check "and leaves no file" sh -c "! ls '$work'/bad* >/dev/null 2>&1"
tandem synth --preset nonsense --type f32 -o "$work/bad.gguf"
expect_error "an unknown preset is wrong use, and the names are told" 1 'tinyllama-1\.1b'
tandem synth --preset gpt2-124m -o "$work/bad.gguf"
expect_error "a model without a type is wrong use" 1 '--type is needed'
tandem synth --preset gpt2-124m --type q8_0
expect_error "a model without a file is wrong use" 1 '-o FILE is needed'
tandem quantize "$work/llama-f32.gguf" --type q8_0
expect_error "quantize without an output is wrong use" 1 'a file name is needed'
tandem quantize "$work/none.gguf" "$work/bad.gguf" --type q8_0
expect_error "a file that is not there cannot be used" 2 'none\.gguf'
finish
