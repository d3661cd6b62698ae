#!/bin/sh
# test_generate - the commands as a user meets them: known texts come out, options do what they say.
#
#   sh test_generate.sh TANDEM TOOLS
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

prompt='Once upon a time'

# ids_are NAME WANT - the ids of the first line of JSON.
ids_are() {
    if [ "$status" -ne 0 ]; then
        not_ok "$1" "status $status"
    elif [ "$(json ids)" != "$2" ]; then
        not_ok "$1" "ids $(json ids), want $2"
    else
        ok "$1"
    fi
}

n_ids() {
    echo $(($(json ids | tr -cd , | wc -c) + 1))
}

# text_is NAME WANT - of standard output, which ends with a newline of its own.
text_is() {
    printf '%s\n' "$2" >"$work/want"
    if [ "$status" -ne 0 ]; then
        not_ok "$1" "status $status"
    elif ! cmp -s "$work/want" "$work/out"; then
        not_ok "$1" "want $2"
    else
        ok "$1"
    fi
}

demo_texts() {
    file=$(data models/demo/demo.json) || exit 1
    want_ids=$(golden "$file" q8_0.greedy)
    want_text=$(golden "$file" q8_0.text)
    for ranks in 0 1 4; do
        tandem_on "$ranks" generate -q -m "$demo_model" -p "$prompt" -n 64 --temp 0 --json
        ids_are "the demo model's ids on $ranks ranks are the reference's" "$want_ids"
    done
    check "the prompt has the ids that the reference gave it" [ "$(json prompt_ids)" = "$(golden "$file" q8_0.prompt)" ]
    check "the text in the JSON is the reference's" [ "$(json text)" = "$want_text" ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 64 --temp 0
    text_is "the text is the reference's" "$want_text"
    check "-q says nothing on standard error" [ ! -s "$work/err" ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 64 --temp 0 --split 3,3,2
    text_is "a split by hand gives the same text" "$want_text"

    if model_f32=$(data models/demo/demo-f32.gguf); then
        tandem generate -q -m "$model_f32" -p "$prompt" -n 64 --temp 0 --json
        ids_are "the demo model in F32 gives the reference's ids" "$(golden "$file" f32.greedy)"
    else
        skip "the demo model in F32 gives the reference's ids" "models/demo/demo-f32.gguf is absent (TANDEM_TEST_DATA)"
    fi
}

demo_gpt2_text() {
    name="the GPT-2 demo model gives the reference's ids"
    if file=$(data models/demo/demo-gpt2.json) && model_gpt2=$(data models/demo/demo-gpt2-q8_0.gguf); then
        tandem_on 3 generate -q -m "$model_gpt2" --ids "$(golden "$file" q8_0.prompt)" -n 64 --temp 0 --json
        ids_are "$name" "$(golden "$file" q8_0.greedy)"
    else
        skip "$name" "models/demo/demo-gpt2.json is absent (TANDEM_TEST_DATA)"
    fi
}

stories() {
    if ! file=$(data models/stories260K/stories260K.json) || ! stories=$(data models/stories260K/stories260K-f32.gguf); then
        skip "stories260K tells the reference's story" "models/stories260K is absent (TANDEM_TEST_DATA)"
        skip "stories260K has the reference's likelihood" "models/stories260K is absent (TANDEM_TEST_DATA)"
        return
    fi
    tandem_on 3 generate -q -m "$stories" -p "$prompt" -n 100 --temp 0 --kv f32
    text_is "stories260K tells the reference's story" "$(golden "$file" greedy_text)"
    # Windows of a BOS and 500 ids.
    tandem perplexity -q -m "$stories" --ids-file "$(data models/stories260K/ppl_windows.ids)" --ctx 501 --kv f32 --json
    check "stories260K scores each of 2000 ids" [ "$(json tokens)" = "$(golden "$file" perplexity.exact.scored)" ]
    check "stories260K has the reference's likelihood within 0.01 %" \
        near "$(json nll_sum)" "$(golden "$file" perplexity.exact.nll_sum)" 0.0001
}

# near GOT WANT SHARE
near() {
    awk -v a="$1" -v b="$2" -v s="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= s * (b < 0 ? -b : b)) }'
}

# scores_near FILE WANT_FILE - each within 2e-4, relative above 1; the difference that is largest is printed.
scores_near() {
    od -An -v -tf4 -w4 "$1" >"$work/got.txt"
    od -An -v -tf4 -w4 "$2" >"$work/want.txt"
    [ "$(wc -l <"$work/got.txt")" -eq "$(wc -l <"$work/want.txt")" ] &&
        paste "$work/got.txt" "$work/want.txt" | awk '
            { d = $1 - $2; if (d < 0) d = -d; b = $2 < 0 ? -$2 : $2; if (b > 1) d /= b; if (!(d <= 2e-4)) bad = 1; n++ }
            END { exit bad || n == 0 }'
}

family_goldens() {
    for family in llama llama-tied llama-yarn llama-linear llama-rope-freqs mistral gpt2; do
        file=$(data families/$family.json) && family_model=$(data families/$family.gguf) || exit 1
        tandem logits -q -m "$family_model" --ids "$(golden "$file" prompt)" --kv f32 --chunk 13 --stages 2 -o "$work/scores"
        check "$family: every score is within 2e-4" scores_near "$work/scores" "$(data families/$family.logits.f32)"
        for part in '' long.; do
            greedy_is_reference "$family" "$part"
        done
    done
}

# greedy_is_reference FAMILY PART - the best token after the prompt and after each golden id is the next golden id; and
# generate gives these, as far as the first that ends a text (316 and 318 do in these files).
greedy_is_reference() {
    name="$1: the greedy ids after the ${2:-short }prompt are the reference's"
    prompt_ids=$(golden "$file" "${2}prompt")
    want=$(golden "$file" "${2}greedy")
    n_prompt=$(echo "$prompt_ids" | tr ',' '\n' | wc -l)
    tandem logits -q -m "$family_model" --ids "$prompt_ids,$want" --kv f32 --top 1
    best=$(awk -v from="$n_prompt" '$1 >= from - 1 { sub(/:.*/, "", $2); print $2 }' "$work/out" | head -n -1 | paste -sd ,)
    check "$name" [ "$best" = "$want" ]
    tandem generate -q -m "$family_model" --ids "$prompt_ids" -n 24 --temp 0 --kv f32 --json
    ids_are "$name by generate" "$(printf '%s\n' "$want" | sed 's/\(,31[68]\),.*/\1/')"
}

several_prompts() {
    set -- "$prompt" 'The dog' 'Lily and Tom went to the park because'
    for p in "$@"; do
        tandem generate -q -m "$demo_model" -p "$p" -n 40 --temp 0.8 --seed 5 --json
        json ids >>"$work/alone"
        echo >>"$work/alone"
    done
    for ranks in 0 3; do
        tandem_on "$ranks" generate -q -m "$demo_model" -p "$1" -p "$2" -p "$3" -n 40 --temp 0.8 --seed 5 --json
        for line in 1 2 3; do
            check "prompt $line of three together on $ranks ranks continues as if alone" \
                [ "$(json ids $line)" = "$(sed -n ${line}p "$work/alone")" ]
        done
    done
}

json_fields() {
    tandem generate -q -m "$demo_model" -p "$prompt" -n 8 --temp 0.7 --seed 9 --json
    for field in prompt_ids ids text finish_reason seed timings; do
        check "the JSON has $field" [ -n "$(json $field)" ]
    done
    check "the JSON gives the seed" [ "$(json seed)" = 9 ]
    check "-n 8 gives 8 ids" [ "$(n_ids)" -eq 8 ]
    check "the reason after -n tokens is length" [ "$(json finish_reason)" = length ]
}

seeds() {
    for ranks in 0 1 2 3 5; do
        tandem_on "$ranks" generate -q -m "$demo_model" -p "$prompt" -n 30 --temp 1.2 --top-p 0.95 --seed 42 --json
        [ "$ranks" -eq 0 ] && want=$(json ids)
        ids_are "seed 42 draws the same on $ranks ranks" "$want"
    done
    tandem generate -q -m "$demo_model" -p "$prompt" -n 30 --temp 1.2 --top-p 0.95 --seed 43 --json
    check "another seed draws something else" [ "$(json ids)" != "$want" ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 30 --temp 1.2 --json
    want=$(json ids)
    tandem generate -q -m "$demo_model" -p "$prompt" -n 30 --temp 1.2 --seed "$(json seed)" --json
    ids_are "a seed that was drawn is reported and repeats" "$want"
}

ends() {
    text=$(golden "$(data models/demo/demo.json)" q8_0.text)
    tandem generate -q -m "$demo_model" -p "$prompt" -n 64 --temp 0 --stop 'One day' --stop 'never in it' --json
    check "a stop string ends the text before it" [ "$(json text)" = "${text%%One day*}" ]
    check "the reason of a stop string is stop" [ "$(json finish_reason)" = stop ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 1 --temp 0
    text_is "-n 1 gives one token" ","
    tandem generate -q -m "$demo_model" -p "$prompt" -n -1 --ctx 32 --temp 0 --json
    n=$((5 + $(n_ids)))
    check "a full context ends the text: $n ids, 32 positions" [ "$n" -eq 32 ]
    check "the reason of a full context is length" [ "$(json finish_reason)" = length ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 200 --temp 0.5 --seed 3 --ignore-eos --json
    check "--ignore-eos goes on for -n tokens" [ "$(n_ids)" -eq 200 ]
    check "--ignore-eos never draws the end" [ "$(json ids | tr ',' '\n' | grep -cx 2043)" -eq 0 ]
}

prompts_from_elsewhere() {
    want=$(golden "$(data models/demo/demo.json)" q8_0.text)
    printf '%s\n' "$prompt" >"$work/prompt"
    tandem generate -q -m "$demo_model" -f "$work/prompt" -n 64 --temp 0
    text_is "-f reads the prompt, without its last newline" "$want"
    "$TANDEM" generate -q -m "$demo_model" -n 64 --temp 0 <"$work/prompt" >"$work/out" 2>"$work/err"
    status=$?
    text_is "standard input is the prompt where none is given" "$want"
    mpirun --oversubscribe -n 2 "$TANDEM" generate -q -m "$demo_model" -n 64 --temp 0 \
        <"$work/prompt" >"$work/out" 2>"$work/err"
    status=$?
    text_is "standard input is the prompt under mpirun, too" "$want"
}

# probabilities - of the lines "SEQUENCE.STEP: ID TEXT P | ID TEXT P ...", one a line behind its step.
probabilities() {
    awk '/^[0-9]+\.[0-9]+: / { n = split($0, part, " \\| "); for (i = 1; i <= n; i++) { k = split(part[i], w, " "); print $1, w[k] } }' "$work/err"
}

fall_and_fit() {
    probabilities | awk '
        $1 != step { step = $1; sum = 0; last = 1 }
        { p = $2 + 0; if ($2 !~ /^[01]\.[0-9]+$/ || p > last || p <= 0) bad = 1; last = p; sum += p; if (sum > 1.001) bad = 1; n++ }
        END { exit bad || n == 0 }'
}

choices() {
    tandem generate -q -m "$demo_model" -p "$prompt" -n 1 --temp 0 --logit-bias 11=-inf --json
    check "--logit-bias bans a token" [ "$(json ids)" != 11 ]
    tandem generate -q -m "$demo_model" -p "$prompt" -n 1 --temp 0 --logit-bias 300=100 --json
    ids_are "--logit-bias makes a token certain" 300
    tandem generate -m "$demo_model" -p "$prompt" -n 2 --temp 0 --top-probs 3
    check "--top-probs gives the three best tokens of each step" [ "$(probabilities | wc -l)" -eq 6 ]
    check "their probabilities fall, and their sum is at most 1" fall_and_fit
}

other_commands() {
    tandem --version
    check "--version says a version" grep -q '[0-9]\.[0-9]' "$work/out"
    for command in '' generate logits perplexity tokenize detokenize inspect; do
        # shellcheck disable=SC2086 # no word where there is no command
        tandem $command --help
        check "tandem $command --help" grep -q '^Usage: tandem' "$work/out"
    done
    tandem tokenize -q -m "$demo_model" -p "$prompt"
    cp "$work/out" "$work/ids"
    check "tokenize gives the ids of a prompt" [ "$(tr -s ' ,\n' ' ' <"$work/ids")" = "2043 408 433 258 382 " ]
    # shellcheck disable=SC2046 # one word an id
    tandem detokenize -q -m "$demo_model" $(tr ',' ' ' <"$work/ids")
    check "detokenize gives the text back" [ "$(cat "$work/out")" = "$prompt" ]
    tandem inspect "$demo_model" --json --ranks 4
    "$TOOLS/json_pick" family <"$work/out" >"$work/family"
    check "inspect knows the family" grep -q llama "$work/family"
    tandem inspect "$demo_model" --tensors
    check "inspect lists tensors" grep -q 'blk\.7\.ffn_down\.weight' "$work/out"
}

demo_texts
demo_gpt2_text
stories
family_goldens
several_prompts
json_fields
seeds
ends
prompts_from_elsewhere
choices
other_commands
finish
