#!/bin/sh
# test_batch - generate --batch: each request as if it were alone, whatever the interruptions; bad lines hurt nobody.
#
#   sh test_batch.sh TANDEM TOOLS
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

in=$work/in.jsonl
result=$work/result.jsonl

# batch RANKS [ARGUMENT...] - run the file, quietly.
batch() {
    ranks=$1
    shift
    tandem_on "$ranks" generate -q -m "$demo_model" --batch "$in" -o "$result" "$@"
}

# in_order FILE - its records by the line that they answer.
in_order() {
    while IFS= read -r record; do
        printf '%s\t%s\n' "$(printf '%s\n' "$record" | "$TOOLS/json_pick" line)" "$record"
    done <"$1" | sort -n | cut -f 2-
}

# record LINE PATH - one value of the record that answers this line of the file.
record() {
    in_order "$result" >"$work/ordered"
    while IFS= read -r r; do
        [ "$(printf '%s\n' "$r" | "$TOOLS/json_pick" line)" = "$1" ] && printf '%s\n' "$r" | "$TOOLS/json_pick" "$2" && return
    done <"$work/ordered"
}

same_as() {
    in_order "$result" >"$work/got"
    cmp -s "$1" "$work/got"
}

# Texts of all lengths: some end with their stop, some draw, some are longer than others.
write_requests() {
    i=0
    while [ $i -lt 24 ]; do
        i=$((i + 1))
        printf '{"id":"r%d","prompt":"Once upon a time there were %d","max_tokens":%d,"temperature":%s,"seed":%d,"stop":[" the","mom"]}\n' \
            $i $i $((5 + i * 7 % 60)) "$([ $((i % 3)) -eq 0 ] && echo 0 || echo 0.9)" $i
    done >"$in"
}

each_as_alone() {
    write_requests
    rm -f "$result"
    batch 0 --stages 2 --slots 5
    check "a batch ends with status 0" [ "$status" -eq 0 ]
    check "each request has its record" [ "$(wc -l <"$result")" -eq 24 ]
    check "-q says nothing on standard error" [ ! -s "$work/err" ]
    in_order "$result" >"$work/want"
    rm -f "$result"
    batch 3
    check "the same on three ranks, with other mates" same_as "$work/want"
    for line in 2 3 17; do
        seed=$line
        temp=$([ $((line % 3)) -eq 0 ] && echo 0 || echo 0.9)
        tandem generate -q -m "$demo_model" -p "Once upon a time there were $line" -n $((5 + line * 7 % 60)) \
            --temp "$temp" --seed "$seed" --stop ' the' --stop mom --json
        check "request $line has the text that it has alone" [ "$(record $line text)" = "$(json text)" ]
        check "request $line ends for the reason that it has alone" [ "$(record $line finish_reason)" = "$(json finish_reason)" ]
    done
}

# Cut anywhere, the next start does what is missing and nothing else.
cut_and_continued() {
    cp "$result" "$work/whole"
    size=$(wc -c <"$result")
    for cut in 0 1 $((size / 2)) $((size - 1)); do
        head -c "$cut" "$work/whole" >"$result"
        kept=$(wc -l <"$result")
        batch 0
        check "cut at byte $cut of $size and continued equals uncut" same_as "$work/want"
        check "what was there at byte $cut is kept" [ "$(head -n "$kept" "$result" | cksum)" = "$(head -n "$kept" "$work/whole" | cksum)" ]
    done
    touch -d '2001-01-01' "$result"
    batch 2
    check "nothing is left to do: status 0" [ "$status" -eq 0 ]
    check "nothing is left to do: nothing is written" [ "$(find "$result" -newermt '2002-01-01')" = '' ]
}

# What is there must be of these requests, this model and these settings.
others_results() {
    cp "$result" "$work/whole"
    cp "$in" "$work/mine"
    while IFS='|' read -r what edit arguments; do
        sed "$edit" "$work/mine" >"$in"
        # shellcheck disable=SC2086
        batch 0 $arguments
        expect_error "$what: the results are not taken for its own" 1 "$result: line [0-9]+ .* -o"
        check "$what: the results stay" cmp -s "$work/whole" "$result"
    done <<EOF
another prompt|s/Once/Twice/|
other stops|s/"mom"/"dad"/|
another length|s/"max_tokens":/&1/|
another seed|s/"seed":/&1/|
a penalty from the command line||--repeat-penalty 1.3
a context that ends texts||--ctx 16
another cache||--kv q8_0
EOF
    cp "$work/mine" "$in"
    "$TANDEM" quantize "$demo_model" "$work/other.gguf" --type q4_0 >/dev/null 2>&1
    tandem generate -q -m "$work/other.gguf" --batch "$in" -o "$result"
    expect_error "another model: the results are not taken for its own" 1 "$result: line [0-9]+ .* -o"
    half=$(($(stat -c %s "$demo_model") / 2))
    head -c "$half" "$demo_model" >"$work/same-header.gguf"
    tail -c "+$((half + 1))" "$demo_model" | tr '\000-\377' '\001-\377\000' >>"$work/same-header.gguf"
    tandem generate -q -m "$work/same-header.gguf" --batch "$in" -o "$result"
    expect_error "other weights behind the same header: neither" 1 "$result: line [0-9]+ .* -o"
    tac "$work/mine" >"$in"
    batch 0 --ctx 500
    check "the same requests in another order, with more room, are done" [ "$status" -eq 0 ]
    check "and their results stay" cmp -s "$work/whole" "$result"
    cp "$work/mine" "$in"
}

some_results() {
    [ -f "$result" ] && [ "$(wc -l <"$result")" -ge 3 ]
}

whole_lines() {
    [ "$(tail -c 1 "$result" | od -An -c | tr -d ' ')" = '\n' ]
}

# interrupted_by SIGNAL STATUS RANKS [ARGUMENT...] - while it works; each batch of rows takes a while.
interrupted_by() {
    signal=$1
    want_status=$2
    what="SIG$1 on $3 ranks"
    started_on=$3
    shift 3
    rm -f "$result"
    export TANDEM_TEST_FAULT=compute:30
    # Not by timeout, which would keep SIGUSR1 for itself.
    set -- "$TANDEM" generate -q -m "$demo_model" --batch "$in" -o "$result" --slots 2 "$@"
    [ "$started_on" -eq 0 ] || set -- mpirun --oversubscribe -n "$started_on" "$@"
    "$@" >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    wait_for 30 some_results || not_ok "$what: results come before it"
    began=$(now_ms)
    kill "-$signal" "$pid"
    wait "$pid"
    status=$?
    took=$(($(now_ms) - began))
    cp "$work/err" "$work/left"
    unset TANDEM_TEST_FAULT
    check "$what ends with status $want_status ($status, after $took ms)" [ "$status" -eq "$want_status" ]
    check "$what leaves whole lines" whole_lines
    n=$(wc -l <"$result")
    check "$what leaves some to do ($n of 24 are done)" [ "$n" -lt 24 ]
    batch 0
    check "continued after $what equals uncut" same_as "$work/want"
}

interruptions() {
    interrupted_by USR1 75 0 --grace 0
    interrupted_by USR1 75 3 --grace 0.2
    interrupted_by TERM 130 0
    interrupted_by KILL 137 0
    # With time enough, what is under way ends, and what has not begun does not.
    interrupted_by USR1 75 0 --grace 60
    check "with time enough, two more end at most, and one that ended meanwhile" [ "$n" -le 7 ]
    check "the line says how many are left" grep -q '^coordinator: .* of 24 requests are left' "$work/left"
}

bad_lines() {
    {
        printf '{"id":"good","prompt":"Once","max_tokens":3}\n'
        printf 'nonsense\n\n'
        printf '{"id":"good","prompt":"twice"}\n'
        printf '{"id":"odd","prompt":"a\000b"}\n'
        printf '{"id":"raw","prompt":"a\377"}\n'
        printf '{"id":"no","prompt":"a","top_p":7}\n'
        printf '{"id":"far","ids":[1,999999]}\n'
        printf '{"id":"long","prompt":"'
        head -c 17000000 /dev/zero | tr '\000' x
        printf '"}\n'
        printf '{"id":"deep","ids":['
        i=0
        while [ $i -lt 700 ]; do printf '1,' && i=$((i + 1)); done
        printf '1]}\n'
        printf '{"prompt":"The dog","max_tokens":2}'
    } >"$in"
    rm -f "$result"
    batch 0 --ctx 64
    check "bad lines do not end a batch" [ "$status" -eq 0 ]
    check "every line that is not blank has one record" [ "$(wc -l <"$result")" -eq 10 ]
    for case in '2 USAGE' '4 USAGE' '5 USAGE' '6 USAGE' '7 USAGE' '8 USAGE' '9 CAPACITY' '10 CAPACITY'; do
        check "line ${case% *} has its error" [ "$(record "${case% *}" error.code)" = "${case#* }" ]
    done
    check "a good line among bad ones has its text" [ "$(record 1 tokens)" = 3 ]
    check "a prompt that is too long keeps its id" [ "$(record 10 id)" = deep ]
    check "a line without an id has its number" [ "$(record 11 id)" = 11 ]

    cp "$result" "$work/whole"
    batch 0 --ctx 64
    check "bad lines are told once" cmp -s "$work/whole" "$result"
    sed -i 's/^nonsense$/{"prompt":"mended","max_tokens":2}/' "$in"
    sed -i 's/"top_p":7/"top_p":8,"seed":-1/' "$in"
    batch 0 --ctx 64
    check "a line that is mended is run" [ "$(tail -n 1 "$result" | "$TOOLS/json_pick" line)" = 2 ]
    check "one that is wrong in another way has that error, and nothing else is new" [ "$(wc -l <"$result")" -eq 12 ]
}

# no_good_line WHAT STATUS LINE - alone, and with another bad one behind it.
no_good_line() {
    printf '%s\nnonsense\n' "$3" >"$in"
    rm -f "$result"
    batch 0 --ctx 16
    expect_error "a batch without one good line, the first $1, has status $2" "$2" \
        "$in: none of its 2 requests can be run \\(line 1: .*\\): see $result"
    check "a batch whose first line $1: each line has its error" [ "$(grep -c '"error"' "$result")" -eq 2 ]
    batch 0 --ctx 16
    check "a batch whose first line $1: it has that status again when it is started again" [ "$status" -eq "$2" ]
    check "a batch whose first line $1: nothing is told twice" [ "$(wc -l <"$result")" -eq 2 ]
    printf '{"prompt":"a","max_tokens":1}\n' >>"$in"
    batch 0 --ctx 16
    check "a batch whose first line $1: with one good line more it has status 0" [ "$status" -eq 0 ]
}

nothing_can_be_run() {
    no_good_line 'is wrong' 1 '{"prompt":7}'
    no_good_line 'is too long' 3 '{"prompt":"Once upon a time there was a dog and a cat and a dog and a cat and a dog"}'
    printf 'nonsense\n' >"$in"
    rm -f "$result"
    batch 3
    check "on three ranks, too, a batch without one good line is no success" [ "$status" -ne 0 ]
    printf '\n' >"$in"
    rm -f "$result"
    batch 0
    check "a batch of no request at all is done" [ "$status" -eq 0 ]
}

wrong_use() {
    tandem generate -q -m "$demo_model" --batch "$in"
    expect_error "--batch without -o is refused" 1 '-o'
    tandem generate -q -m "$demo_model" --batch "$in" -o "$work/x" -p a
    expect_error "--batch with a prompt is refused" 1 '-p'
    tandem generate -q -m "$demo_model" --batch "$work/absent" -o "$work/x"
    expect_error "a batch file that is not there is said" 2 'absent'
    tandem generate -q -m "$demo_model" --batch /dev/null -o "$work/x"
    expect_error "a batch that can be read only once is refused" 2 'plain file'
    mkfifo "$work/pipe"
    tandem generate -q -m "$demo_model" --batch "$work/pipe" -o "$work/x"
    expect_error "a named pipe is refused, and not waited for" 2 'pipe is no plain file'
    tandem plan -m "$demo_model" --cluster "$work/pipe"
    expect_error "a cluster in a named pipe, too" 2 'pipe is no plain file'
    echo mine >"$work/notes"
    tandem generate -q -m "$demo_model" --batch "$in" -o "$work/notes"
    expect_error "another file is not written over" 2 'notes: line 1'
    check "and is left as it was" [ "$(cat "$work/notes")" = mine ]
}

each_as_alone
cut_and_continued
others_results
interruptions
bad_lines
nothing_can_be_run
wrong_use
finish
