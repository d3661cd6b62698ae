#!/bin/sh
# test_hostile - every malformed GGUF file is accepted or refused as MANIFEST.json says: quickly, in little memory, and
# with one line that names the fault.
#
#   sh test_hostile.sh TANDEM TOOLS
#
# Runs under the sanitizers, too: a fault that they find ends with another status than a refusal.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

limit_s=5
cpu_ms_max=1000
peak_kib_max=65536
# A refusal ends with status 2, so a leak must not.
export ASAN_OPTIONS="${ASAN_OPTIONS:-}:exitcode=99"
export UBSAN_OPTIONS="${UBSAN_OPTIONS:-}:exitcode=99"

# faults - what the line must say: a pattern for every file whose name starts so; the first that fits counts.
faults() {
    cat <<'END'
alignment_2_31        has offset 8288, want 2147483648
alignment             general.alignment is
arch                  general.architecture|family ".*" is not supported
array_element         value type 99
array_nested          array of arrays
array                 the length of an array
block_count_1e9       1000000000 layers, but only 12 tensors
block_count_2         blk.1.attn_norm.weight is missing
block_count           block_count is 0
block_not_multiple    rows of 8 values, want a multiple of 32
bos_id                bos_token_id is
context_length        context_length is
dim_bytes             more than a file of
dim                   tensor blk.0.ffn_up.weight has [0-9]+ in axis 1
embedding_length      embedding_length is
empty                 the file is empty
eos_id                eos_token_id is
eps                   layer_norm_rms_epsilon is
expert_count          expert_count is 1000000
expert_used           expert_used_count is
feed_forward_length   feed_forward_length is 0
head_count_3          3 heads do not divide the width of 8
head_count_kv_0       head_count_kv is 0
head_count_kv_array   head_count_kv has 0 entries
head_count_kv         KV heads
head_count            head_count is
key_65536             a key at byte 4405 has 65536 bytes
key_duplicate         llama.block_count is there twice
key_empty             a key at byte 4405 has 0 bytes
key_length_odd        dimension_count is 4, want an even number, equal to the 7
key_length            the file ends inside a key
key                   a key at byte 4405 has the byte
kv_type               key x.t has value type
magic                 not a GGUF file
merge                 tokenizer.ggml.merges
missing               key llama.* is missing
n_dims                has [0-9]+ axes
n_kv_one              inside a tensor name|number format 2048
n_kv                  the number of keys
n_tensors_0           only 0 tensors
n_tensors_one         tensor
n_tensors             the number of tensors
offset                tensor .* has offset [0-9]+, want
rope_dim              rope.dimension_count is
rope_freq             rope.freq_base is 0
rope_scaling          rope.scaling.type is "banana"
shape                 tensor .* is \[.*\], want \[
string_length         the file ends inside a string
tensor_missing        weight is missing
tensor_name_duplicate blk.0.attn_q.weight is there twice
tensor_name           a tensor name at byte 4871 has
tensor_type           blk.0.ffn_up.weight has number format
tensor_unexpected     blk.7.attn_q.weight has no place
tokenizer_model       tokenizer.ggml.model is "nosuch"
tokenizer_pre         pre-tokenizer "nosuch"
trunc                 is cut|the file ends inside|more than a file of|bytes follow|the whole file has
version               version
vocab_scores          tokenizer.ggml.scores
vocab_tokens          tokenizer.ggml.tokens
vocab_types           tokenizer.ggml.token_type
weight_nan            is nan
END
}
faults >"$work/faults"

# judge EXPECT - the last run of the file ended as it should; else prints why not.
judge() {
    read -r cpu_ms peak_kib <"$work/usage" || return
    lines=$(wc -l <"$work/err")
    fault=$(awk -v name="$base" 'index(name, $1) == 1 { sub(/^[^ ]+ +/, ""); print; exit }' "$work/faults")
    case $status,$1 in
    124,*) echo "not done after $limit_s s" ;;
    0,reject) echo "accepted" ;;
    0,*) [ "$(wc -l <"$work/out")" -eq 2 ] || echo "accepted, but no scores of 2 positions" ;;
    [23],accept) echo "refused" ;;
    [23],*)
        if [ "$lines" -ne 1 ]; then
            echo "$lines lines on standard error, want one"
        elif [ -z "$fault" ] || ! grep -qE -- "$fault" "$work/err"; then
            echo "the line does not say '$fault'"
        fi
        ;;
    *) echo "status $status" ;;
    esac
    [ "$cpu_ms" -lt "$cpu_ms_max" ] || echo "$cpu_ms ms"
    [ "$peak_kib" -lt "$peak_kib_max" ] || echo "$peak_kib KiB"
}

manifest=$(data malformed/MANIFEST.json) || {
    skip "malformed files" "malformed/MANIFEST.json is absent"
    finish
}
awk -F'"' '$2 == "file" { f = $4 } $2 == "expect" { print f, $4 }' "$manifest" | grep '^gguf/' >"$work/cases"
check "the manifest lists the files" [ "$(wc -l <"$work/cases")" -ge 100 ]

while read -r name expect; do
    if ! file=$(data "malformed/$name"); then
        skip "$name" "absent (TANDEM_TEST_DATA)"
        continue
    fi
    base=$(basename "$name" .gguf)
    rm -f "$work/usage"
    run "$TOOLS/peak" "$work/usage" "$TANDEM" logits -q --hash --threads 1 --ids 1,2 -m "$file"
    why=$(judge "$expect" || echo "no usage")
    if [ -z "$why" ]; then ok "$expect $name"; else not_ok "$expect $name" "$why"; fi
done <"$work/cases"
finish
