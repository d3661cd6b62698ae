#!/bin/sh
# test_split - a model in several files gives the bits of the model in one, on one rank and on several.
#
#   sh test_split.sh TANDEM TOOLS
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

ids=1,5,9,200,17,33,4,250,61,8
if ! whole=$(data families/llama.gguf); then
    skip "a split model" "families/llama.gguf is absent"
    finish
fi
for n in 1 3 7; do "$TOOLS/split_model" "$whole" "$work/m" "$n" || exit 1; done

tandem logits -q -m "$whole" --ids "$ids" --hash
check "the whole model has scores of every position" [ "$status" -eq 0 -a "$(wc -l <"$work/out")" -eq 10 ]
mv "$work/out" "$work/want"

# same NAME RANKS FILE
same() {
    tandem_on "$2" logits -q -m "$3" --ids "$ids" --hash
    check "$1 gives the same bits" cmp -s "$work/want" "$work/out"
}
same "3 parts in one process" 0 "$work/m-00001-of-00003.gguf"
same "3 parts on 3 ranks" 3 "$work/m-00001-of-00003.gguf"
same "7 parts on 4 ranks" 4 "$work/m-00001-of-00007.gguf"
same "a split of one part" 0 "$work/m-00001-of-00001.gguf"

tandem inspect "$work/m-00001-of-00003.gguf"
check "inspect reads a split model" [ "$status" -eq 0 ]
tandem quantize -q "$whole" "$work/from-whole.gguf" --type q8_0
tandem quantize -q "$work/m-00001-of-00003.gguf" "$work/from-parts.gguf" --type q8_0
check "quantize writes the same file" cmp -s "$work/from-whole.gguf" "$work/from-parts.gguf"

rm "$work/m-00002-of-00003.gguf"
tandem logits -q -m "$work/m-00001-of-00003.gguf" --ids 1,2
expect_error "a missing part is named" 2 'm-00002-of-00003.gguf: cannot be opened'
tandem logits -q -m "$work/m-00003-of-00003.gguf" --ids 1,2
expect_error "a later part is refused" 2 'part 3 of 3 of a split model: give the first part'
finish
