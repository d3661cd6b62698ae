#!/bin/sh
# test_faults - what goes wrong is named in one line, with the right status, and nothing hangs or stays behind.
#
#   sh test_faults.sh TANDEM TOOLS
#
# Under mpirun the status that counts is the coordinator's own, which mpirun may replace: a small shell around the
# coordinator writes it down. TANDEM_TEST_FAULT (engine/fault.h) makes workers slow where a test needs the time.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

limit_s=60
llama=$(data families/llama.gguf) || exit 1
lines='^(tandem|coordinator|worker [0-9]+[^:]*): '

# The shell around the coordinator: it outlives signals that are meant for tandem.
cat >"$work/note_status.sh" <<'EOF'
trap : TERM INT USR2
"$@"
status=$?
echo $status >"$NOTE"
exit $status
EOF

# line RANKS [ARGUMENT...] - tandem under mpirun in the background: $mpirun_pid, and $work/out, err, coordinator.
line() {
    others=$(($1 - 1))
    shift
    rm -f "$work/coordinator"
    : >"$work/out"
    : >"$work/err"
    NOTE="$work/coordinator" timeout -k 5 "$limit_s" mpirun --oversubscribe \
        -n 1 sh "$work/note_status.sh" "$TANDEM" "$@" : -n $others "$TANDEM" "$@" \
        >"$work/out" 2>"$work/err" </dev/null &
    mpirun_pid=$!
}

# our_lines - errors of tandem on standard error, without what mpirun adds and without the sleeps that were asked for.
our_lines() {
    grep -E "$lines" "$work/err" | grep -v 'sleeps .*TANDEM_TEST_FAULT'
}

# line_end - wait for it; $status is the coordinator's, 124 when mpirun ran out of time, 255 when there is none.
line_end() {
    wait "$mpirun_pid"
    status=$?
    [ $status -eq 124 ] || status=$(cat "$work/coordinator" 2>/dev/null || echo 255)
    our_lines >"$work/ours"
    mv "$work/err" "$work/mpirun_err"
    mv "$work/ours" "$work/err"
}

run_line() {
    line "$@"
    line_end
}

gone() {
    [ -z "$(ranks_alive)" ]
}

# nobody_left NAME - within 3 s.
nobody_left() {
    if wait_for 3 gone; then ok "$1"; else not_ok "$1" "still alive: $(ranks_alive | tr '\n' ' ')"; fi
}

# ---- files ----

# bad_file STATUS PATTERN FILE - alone, and on two ranks.
bad_file() {
    tandem generate -q -m "$3" --ids 1,2 -n 2
    expect_error "$(basename "$3") is refused" "$1" "$2"
    run_line 2 generate -q -m "$3" --ids 1,2 -n 2
    expect_error "$(basename "$3") is refused on 2 ranks" "$1" "$2"
}

bad_files() {
    bad_file 2 'No such file' "$work/missing.gguf"
    bad_file 2 'magic' "$(data malformed/gguf/magic_bad.gguf)"
    bad_file 2 'bytes|end' "$(data malformed/gguf/trunc_data_half.gguf)"
    bad_file 2 'family|architecture' "$(data malformed/gguf/arch_unknown.gguf)"
    bad_file 2 'number format 200' "$(data malformed/gguf/tensor_type_200.gguf)"
    bad_file 2 'score .* is (nan|inf)' "$(data malformed/gguf/weight_nan.gguf)"
}

different_files() {
    rm -f "$work/coordinator"
    NOTE="$work/coordinator" timeout -k 5 "$limit_s" mpirun --oversubscribe \
        -n 1 sh "$work/note_status.sh" "$TANDEM" generate -q -m "$llama" --ids 1 -n 2 : \
        -n 1 "$TANDEM" generate -q -m "$llama" --ids 1 -n 2 : \
        -n 1 "$TANDEM" generate -q -m "$(data families/mistral.gguf)" --ids 1 -n 2 \
        >"$work/out" 2>"$work/err" </dev/null &
    mpirun_pid=$!
    line_end
    expect_error "a rank with another model file is named" 6 'worker 2 @'
}

# with_files FILE FILE FILE [ARGUMENT...] - a coordinator and two workers, each with its own file.
with_files() {
    first=$1
    second=$2
    third=$3
    shift 3
    rm -f "$work/coordinator"
    NOTE="$work/coordinator" timeout -k 5 "$limit_s" mpirun --oversubscribe \
        -n 1 sh "$work/note_status.sh" "$TANDEM" generate -q -m "$first" --ids 1 -n 2 "$@" : \
        -n 1 "$TANDEM" generate -q -m "$second" --ids 1 -n 2 "$@" : \
        -n 1 "$TANDEM" generate -q -m "$third" --ids 1 -n 2 "$@" >"$work/out" 2>"$work/err" </dev/null &
    mpirun_pid=$!
    line_end
}

# The same header and size, and nothing that two workers hold: what tells them apart are samples of the data.
other_weights() {
    model untied family=llama type=Q8_0 layers=4
    other=$work/other-weights.gguf
    cp "$made" "$other"
    half=$(($(stat -c %s "$made") / 2))
    tail -c "$half" "$made" | tr '\000-\377' '\001-\377\000' | dd of="$other" bs=1M seek=$(($(stat -c %s "$made") - half)) \
        oflag=seek_bytes conv=notrunc 2>/dev/null
    with_files "$made" "$made" "$other"
    expect_error "other weights behind the same header are named" 6 'worker 2 @.*other weights.*same header'
}

# The same header and size, one other byte in the embedding, which the first and the last worker hold: its data comes
# first in the file and is most of it.
one_other_byte() {
    named='tensor token_embd\.weight has digest .* worker 1 @.*: copy the same file'
    for type in Q8_0 F16; do
        model "tied-$type" family=gpt2 type=$type layers=2 vocab=4096
        other=$work/other-$type.gguf
        cp "$made" "$other"
        at=$(($(stat -c %s "$made") / 2))
        old=$(od -An -tu1 -j $at -N 1 "$made" | tr -d ' ')
        # shellcheck disable=SC2059 # an octal escape
        printf "\\$(printf %o $((old ^ 1)))" | dd of="$other" bs=1 seek=$at conv=notrunc 2>/dev/null
        with_files "$made" "$made" "$made"
        check "$type: workers with the same file work" [ "$status" -eq 0 ]
        with_files "$made" "$made" "$other"
        expect_error "$type: one other byte in the tied embedding is named" 6 "^worker 2 @.*: $named"
    done
    with_files "$made" "$other" "$work/nowhere.gguf" --cache "$work/cache"
    expect_error "beside a worker whose weights are streamed" 6 "^worker 2 @.*: $named"
    check "which has kept them" [ -n "$(find "$work/cache" -name '*.slice')" ]
    with_files "$made" "$other" "$work/nowhere.gguf" --cache "$work/cache"
    expect_error "beside a worker whose weights come from its cache" 6 "^worker 2 @.*: $named"
    with_files "$made" "$made" "$work/nowhere.gguf" --cache "$work/cache"
    check "the cached weights are those of the same file" [ "$status" -eq 0 ]
    with_files "$made" "$other" "$other" --weights stream
    check "--weights stream: what the workers have does not count" [ "$status" -eq 0 ]
}

# ---- what does not fit, and wrong use ----

does_not_fit() {
    tandem generate -q -m "$llama" --ids 1,2,3,4,5,6,7,8,9 --ctx 8
    expect_error "a prompt longer than the context is refused" 3 '9 tokens.* 8'
    tandem generate -q -m "$llama" --ids 1 --stages 5
    expect_error "more stages than layers are refused with the limit" 3 '4 layers'
    run_line 6 generate -q -m "$llama" --ids 1
    expect_error "more workers than layers are refused with the limit" 3 '5 workers for 4 layers.*mpirun -n 5'
    tandem generate -q -m "$llama" --ids 1 --split 1,2
    expect_error "a split that does not add up is refused" 1 '3.* 4|4.* 3'
}

wrong_prompts() {
    tandem generate -q -m "$llama" -p '' -n 2
    expect_error "an empty prompt is refused" 1 'empty'
    tandem generate -q -m "$llama" --ids 1,320 -n 2
    expect_error "a token beyond the vocabulary is refused" 1 '320'
    tandem generate -q -m "$llama" --ids 1,x -n 2
    expect_error "a token that is no number is refused" 1 "x"
    tandem tokenize -q -m "$demo_model" -p "$(printf 'a\377\300b')"
    check "a prompt that is no UTF-8 becomes tokens" [ "$status" -eq 0 ]
    cp "$work/out" "$work/ids"
    tandem generate -q -m "$demo_model" -p "$(printf 'a\377\300b')" -n 2 --temp 0
    check "a prompt that is no UTF-8 is continued" [ "$status" -eq 0 ]
}

# More than 500 MB of weights, which take no disk.
no_memory() {
    model big zero=1 embd=2048 ff=8192 layers=2 vocab=1000
    # Enough to map the file once, but not again in the worker's part; enough to map it, but not to pack its tensors.
    for kib in 700000 1300000; do
        run sh -c 'ulimit -v "$0" && exec "$@"' $kib "$TANDEM" generate -q -m "$made" --ids 1 -n 1
        expect_error "no memory at $kib KiB is said, not a crash" 3 'memory'
    done
    rm -f "$work/coordinator"
    NOTE="$work/coordinator" timeout -k 5 "$limit_s" mpirun --oversubscribe \
        -n 1 sh "$work/note_status.sh" "$TANDEM" generate -q -m "$made" --ids 1 -n 1 : \
        -n 1 sh -c 'ulimit -v 700000 && exec "$@"' sh "$TANDEM" generate -q -m "$made" --ids 1 -n 1 \
        >"$work/out" 2>"$work/err" </dev/null &
    mpirun_pid=$!
    line_end
    expect_error "a worker without memory is named" 3 'worker 1 @.*memory'
}

closed_output() {
    "$TANDEM" generate -q -m "$demo_model" -p 'Once' -n 20 --temp 0 >&- 2>"$work/err" </dev/null
    status=$?
    : >"$work/out"
    expect_error "a closed standard output is said" 2 'standard output'
    { timeout -k 5 "$limit_s" "$TANDEM" generate -q -m "$demo_model" -p 'Once' -n 100 --temp 0 2>"$work/err" </dev/null
        echo $? >"$work/status"; } | head -c 1 >/dev/null
    status=$(cat "$work/status")
    expect_error "a reader that goes away is said" 2 'standard output'
    if [ -w /dev/full ]; then
        "$TANDEM" generate -q -m "$demo_model" -p 'Once' -n 20 --temp 0 >/dev/full 2>"$work/err" </dev/null
        status=$?
        expect_error "a full disk is said" 2 'standard output'
    fi
}

# ---- signals and dead workers ----

# sleeps RANK - it does what TANDEM_TEST_FAULT asks for.
sleeps() {
    grep -qE "^worker $1 .*sleeps .*TANDEM_TEST_FAULT" "$work/err"
}

text_has_come() {
    [ -s "$work/out" ]
}

long_run() {
    line 4 generate -m "$demo_model" -p 'Once upon a time' -n 200 --temp 0 --ignore-eos
}

interrupts() {
    export TANDEM_TEST_FAULT=decode:50
    long_run
    wait_for 30 text_has_come
    # timeout passes the signal on to mpirun, as a terminal would.
    kill -INT "$mpirun_pid"
    nobody_left "after Ctrl-C under mpirun no rank is left"
    line_end

    : >"$work/out"
    "$TANDEM" generate -q -m "$demo_model" -p 'Once' -n 200 --temp 0 --ignore-eos --stages 2 \
        >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    wait_for 30 text_has_come
    kill -INT "$pid"
    wait "$pid"
    status=$?
    expect_error "Ctrl-C without mpirun ends with its status" 130 'interrupted'
    unset TANDEM_TEST_FAULT
}

line_names() {
    [ -n "$(our_lines)" ]
}

# kill_worker NAME SIGNAL RANK STATUS WITHIN_MS FAULT COMMAND... - when the command succeeds, send the rank the signal; the
# line on standard error comes in time and names it.
kill_worker() {
    what=$1
    signal=$2
    rank=$3
    want=$4
    within=$5
    export TANDEM_TEST_FAULT="$6"
    shift 6
    long_run
    if ! wait_for 30 "$@"; then
        not_ok "$what: the run gets so far" "$*"
        kill "$mpirun_pid"
        line_end
        return
    fi
    victim=$(pid_of "$rank")
    began=$(now_ms)
    kill "-$signal" "$victim"
    wait_for 10 line_names
    took=$(($(now_ms) - began))
    echo "-- after $took ms"
    check "$what: the line comes within $within ms" [ "$took" -le "$within" ]
    nobody_left "$what: no rank is left after 3 s"
    line_end
    expect_error "$what: rank $rank is named" "$want" "worker $rank @"
}

dead_workers() {
    kill_worker "killed while loading" KILL 2 4 1500 load:6000 sleeps 2
    kill_worker "killed in prefill" KILL 1 4 1500 prefill:6000 sleeps 1
    kill_worker "killed in decode" KILL 3 4 1500 3:decode:6000 sleeps 3
    # Worker 1 works for a long time, and worker 3 has nothing to do.
    kill_worker "killed while idle" KILL 3 4 1500 1:decode:6000 sleeps 1
    kill_worker "stopped in decode" STOP 2 5 5000 2:decode:50 sleeps 2
}

dumped() {
    for rank in 1 2 3; do
        grep -qE "^worker $rank @.*(in batch|while waiting).* batches of [0-9]+ rows are done" "$work/err" || return 1
        grep -qE "^coordinator: worker $rank @.* was heard of .* s ago" "$work/err" || return 1
    done
    grep -q '^coordinator: request 0: prompt 5 of 5 tokens sent' "$work/err" &&
        grep -q '^coordinator: queue: .* 1 in their text' "$work/err"
}

has_said_more() {
    [ "$(wc -c <"$work/out")" -gt "$1" ]
}

dumps() {
    export TANDEM_TEST_FAULT=2:decode:100
    long_run
    wait_for 30 text_has_come
    # timeout would keep the signal for itself: to mpirun, its child.
    kill -USR2 "$(tr -d ' ' <"/proc/$mpirun_pid/task/$mpirun_pid/children")"
    if wait_for 5 dumped; then ok "on SIGUSR2 every rank says what it does"; else not_ok "on SIGUSR2 every rank says what it does"; fi
    said=$(wc -c <"$work/out")
    check "and the line goes on" wait_for 10 has_said_more "$said"
    kill "$mpirun_pid"
    line_end
    unset TANDEM_TEST_FAULT
}

# Nothing else is on standard error, so a program may read all of it.
json_lines() {
    tandem_on 3 generate -m "$demo_model" -p 'Once' -n 5 --temp 0.8 --log-json
    check "--log-json: the run is as without" [ "$status" -eq 0 ]
    n=0
    while IFS= read -r record; do
        n=$((n + 1))
        for field in time level rank host who event text; do
            printf '%s\n' "$record" | "$TOOLS/json_pick" $field >/dev/null 2>&1 || bad="line $n has no $field"
        done
        printf '%s\n' "$record" | "$TOOLS/json_pick" event >>"$work/events"
        echo >>"$work/events"
    done <"$work/err"
    [ "$n" -gt 0 ] || bad='there is none'
    check "--log-json: each line is an object with all fields${bad:+, but $bad}" [ -z "${bad:-}" ]
    for event in ready seed 'done'; do
        check "--log-json: it tells of '$event'" grep -qx $event "$work/events"
    done
    tandem_on 3 generate -m "$demo_model" --ids 1,99999 -n 5 --log-json
    grep '^{' "$work/err" | "$TOOLS/json_pick" event >"$work/events"
    check "--log-json: an error is named by its kind" [ "$(cat "$work/events")" = usage ]
}

faulty_workers() {
    export TANDEM_TEST_FAULT=2:decode:error
    run_line 4 generate -q -m "$demo_model" -p 'Once' -n 20 --temp 0
    expect_error "a worker's own error is told by the coordinator" 4 'worker 2 @'

    export TANDEM_TEST_FAULT=2:load:exit
    run_line 4 generate -q -m "$demo_model" -p 'Once' -n 20 --temp 0
    expect_error "a worker that ends while loading is named" 4 'worker 2 @'
    unset TANDEM_TEST_FAULT
}

bad_files
different_files
other_weights
one_other_byte
does_not_fit
wrong_prompts
no_memory
closed_output
interrupts
dead_workers
dumps
json_lines
faulty_workers
finish
