#!/bin/sh
# test_plan - a plan is what a line then needs; a cluster is measured, described and planned for; a line that is cut
# by speed says the same as any other, also where it leaves ranks out.
#
#   sh test_plan.sh TANDEM TOOLS
#
# No speed is judged.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# ---- memory: planned against resident ----

# ids N STEP - N token ids, joined by commas.
ids() {
    awk -v n="$1" -v step="$2" 'BEGIN { while (n-- > 0) printf "%d%s", n * step % 251 + 2, (n ? "," : "\n") }'
}

# resident RANK - MiB at most, as the last run's -v report says.
resident() {
    sed -n "s/^rank $1: .*resident at most \([0-9.]*\) \([KMG]\)iB.*/\1 \2/p" "$work/err" |
        awk '{ print $1 * ($2 == "G" ? 1024 : $2 == "K" ? 1 / 1024 : 1) }'
}

# planned PATH - of the last plan.
planned() {
    "$TOOLS/json_pick" "$1" <"$work/plan.json"
}

# compare WORKERS - the plan's split, run: each worker holds what was said, within 3 % + 16 MiB.
compare() {
    split=$(i=0; while [ "$i" -lt "$1" ]; do
        echo $(($(planned "ranks.$i.end_layer") - $(planned "ranks.$i.first_layer")))
        i=$((i + 1))
    done | paste -sd,)
    tandem_on $(($1 + 1)) generate -v -m "$made" -n 8 --temp 0 --ignore-eos --ctx 256 --split "$split" \
        --ids "$(ids 248 3)" --ids "$(ids 248 7)"
    [ "$status" -eq 0 ] || return 1
    i=0
    while [ "$i" -lt "$1" ]; do
        need=$(planned "ranks.$i.need_bytes")
        held=$(resident $((i + 1)))
        printf 'worker %d of %d, layers %s: %d MiB planned, %s MiB resident at most\n' $((i + 1)) "$1" "$split" \
            $((need / 1048576)) "${held:=0}"
        awk -v need="$need" -v held="$held" 'BEGIN {
            need /= 1048576
            off = held > need ? held - need : need - held
            exit !(held > 0 && off <= 0.03 * need + 16) }' || return 1
        i=$((i + 1))
    done
}

printf '* read=10 gops=100\na\nb read=7\nc\n' >"$work/three"
for type in Q8_0 Q4_0; do
    model "$type" type=$type layers=9 embd=768 ff=3072 heads=12 kv=12 vocab=32000 ctx=4096 zero=1
    for workers in 1 2 3; do
        head -n $((workers + 1)) "$work/three" >"$work/cluster"
        tandem plan -m "$made" --cluster "$work/cluster" --ctx 256 --slots 2 --json
        cp "$work/out" "$work/plan.json"
        check "$type on $workers workers needs what was planned" compare $workers
    done
done

# ---- the command ----

tandem plan -m "$demo_model" --ranks 4
check "this host is planned for" [ "$status" -eq 0 ]
check "the plan names the bottleneck" grep -q '^slowest  rank [123] @' "$work/out"
check "the plan says which context fits" grep -q '^context  [0-9]* tokens fit' "$work/out"

tandem plan -m "$demo_model" --ranks 4 --ctx 300
check "a context that the model was not trained for is warned of" \
    grep -q -- '--ctx 300 is beyond the 256 tokens that the model was trained for' "$work/err"
printf '* read=10 gops=100\na ranks=990\n' >"$work/cluster"
tandem plan -m "$demo_model" --cluster "$work/cluster"
check "ranks that are left out for one reason take one line" \
    [ "$(grep -c 'left out' "$work/out")" = 1 ]
check "which names them" grep -q '^left out: 9..990 @a (982 ranks): every layer has a rank' "$work/out"

tandem plan -m "$demo_model"
expect_error "a plan for nobody is refused" 1 'one of --ranks N and --cluster FILE'
tandem plan -m "$demo_model" --ranks 2 --cluster "$work/three"
expect_error "a plan for two things is refused" 1 'one of --ranks N and --cluster FILE'
printf '* read=10 gops=100\na\nb read=fast\n' >"$work/cluster"
tandem plan -m "$demo_model" --cluster "$work/cluster"
expect_error "a fault in a cluster file is named with its line" 2 "cluster:3: 'read=fast'"
tandem plan -m "$demo_model" --cluster "$work/absent"
expect_error "an absent cluster file is an error" 2 'absent'
printf 'a read=10 gops=100\0\n' >"$work/cluster"
tandem plan -m "$demo_model" --cluster "$work/cluster"
expect_error "a cluster file that is no text is refused" 2 'is no text'
printf '* read=10 gops=100 memory=400M\na\nb\n' >"$work/cluster"
model Q8_0
tandem plan -m "$work/Q8_0.gguf" --cluster "$work/cluster" --slots 32 --ctx 4096
expect_error "what does not fit is refused with a context that does" 3 'what fits is --ctx [0-9]+$'
tandem plan -m "$work/Q8_0.gguf" --cluster "$work/cluster" --slots 32 \
    --ctx "$(sed 's/.*--ctx //' "$work/err")"
check "and that one does fit" [ "$status" -eq 0 ]

# ---- probe ----

for n in 0 1 2 4; do
    tandem_on "$n" probe -m "$demo_model" -o "$work/probed"
    [ "$status" -eq 0 ] && tandem plan -m "$demo_model" --cluster "$work/probed" --json
    want=$((n > 2 ? n - 1 : 1))
    check "the cluster of $n ranks is measured and can be planned for" \
        [ "$status,$("$TOOLS/json_pick" "ranks.$((want - 1)).rank" <"$work/out")" = "0,$want" ]
done
tandem probe -o "$work/absent/probed"
expect_error "a cluster file that cannot be written is an error" 2 'absent/probed'

# ---- --split auto ----

tandem logits -m "$demo_model" -p "Once upon a time" --hash
cp "$work/out" "$work/hashes"
for n in 2 4 11; do
    tandem_on "$n" logits -m "$demo_model" -p "Once upon a time" --hash --split auto
    check "$n ranks that are cut by speed give the same bits" cmp -s "$work/out" "$work/hashes"
done
check "of ten workers for eight layers some are left out, and named" \
    grep -q 'worker [0-9]* @.* is left out: it would only slow the line' "$work/err"
tandem generate -m "$demo_model" --stages 10 --split auto -p "Once upon a time" -n 20 --temp 0
check "stages of one process may be left out, too" grep -q 'is left out' "$work/err"
cp "$work/out" "$work/text"
tandem generate -m "$demo_model" -p "Once upon a time" -n 20 --temp 0
check "and the text is the same" cmp -s "$work/out" "$work/text"

check "no rank is left" [ -z "$(ranks_alive)" ]
finish
