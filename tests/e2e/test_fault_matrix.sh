#!/bin/sh
# test_fault_matrix - killed, stopped, gone or failed; while measuring, loading, in the prompt, in the text or idle;
# each rank of a line: the one that it was is named in time, the line ends with the right status, and nobody is left.
#
#   sh test_fault_matrix.sh TANDEM TOOLS
#
# The ranks do it to themselves (engine/fault.h) and say when, and the lines of --log-json have the time, so several
# lines run side by side.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

side_by_side=3
stall_s=1.5
dead_ms=1500
stall_ms=2500

# The shell around the coordinator notes its own status, which mpirun may replace.
cat >"$work/note_status.sh" <<'EOF2'
trap : TERM
"$@"
status=$?
echo $status >"$NOTE"
exit $status
EOF2

# ms_of LINE - of the day.
ms_of() {
    printf '%s\n' "$1" | sed 's/.*T\([0-9]*\):\([0-9]*\):\([0-9]*\)\.\([0-9]*\)Z.*/\1 \2 \3 \4/' |
        awk '{ print (($1 * 60 + $2) * 60 + $3) * 1000 + $4 }'
}

# The right status: mpirun's for the coordinator, where it cannot have one of its own; the coordinator's for others.
want_status() {
    case $1:$2 in
    *:stop) echo 5 ;;
    0:kill) echo 137 ;;
    0:exit) echo 7 ;;
    *) echo 4 ;;
    esac
}

# named_in_time RANK LIMIT_MS - the fault's line, then errors of this rank alone, the first one in time.
named_in_time() {
    grep '"event":"fault"' "$work/err" | head -n 1 >"$work/fault"
    grep '"level":"error"' "$work/err" >"$work/errors"
    [ -s "$work/fault" ] && [ -s "$work/errors" ] || return 1
    grep -qv "\"rank\":$1," "$work/errors" && return 1
    took=$(($(ms_of "$(head -n 1 "$work/errors")") - $(ms_of "$(cat "$work/fault")")))
    [ "$took" -ge -43200000 ] || took=$((took + 86400000))
    [ "$took" -le "$2" ]
}

# What a worker says of its own error is exact; of one that is silent the last heartbeat is all that is known, and
# states that change faster than heartbeats come may be told as they were a moment before.
says_what_it_did() {
    case $1:$2:$3 in
    0:*) pattern=. ;;
    *:load:*) pattern='while loading' ;;
    *:measure:*) pattern='while measuring its speed' ;;
    *:idle:error) pattern='while waiting' ;;
    *:error) pattern='in batch [0-9]* at layer [0-9]' ;;
    *) pattern='in batch [0-9]* at layer [0-9]|while waiting' ;;
    esac
    grep -qE "$pattern" "$work/errors"
}

gone() {
    [ -z "$(ranks_alive)" ]
}

# one RANK PLACE ACTION - in a folder and with processes of its own.
one() {
    TANDEM_TEST_TAG="$TANDEM_TEST_TAG-$1-$2-$3"
    note_status=$work/note_status.sh
    work=$work/$1-$2-$3
    mkdir "$work"
    # mpiruns that end and start side by side may take away each other's session folder.
    export OMPI_MCA_orte_tmpdir_base="$work"
    export TANDEM_TEST_TAG TANDEM_TEST_FAULT="$1:$2:$3" NOTE="$work/coordinator"
    set -- "$1" "$2" "$3" "$TANDEM" generate -m "$demo_model" -p 'Once upon a time' -n 200 --temp 0 --ignore-eos \
        --log-json --stall-timeout "$stall_s"
    rank=$1 name="rank $1, $2, $3" place=$2 action=$3 limit=$dead_ms
    [ "$action" = stop ] && limit=$stall_ms
    shift 3
    [ "$place" = measure ] && set -- "$@" --split auto
    # On a quick wire a worker may never find its queue empty.
    [ "$place" = idle ] && set -- "$@" --link-emulate 5ms
    took=-
    if [ "$rank" -eq 0 ]; then
        timeout -k 5 30 mpirun --oversubscribe -n 3 "$@" >"$work/out" 2>"$work/err" </dev/null
        status=$?
    else
        timeout -k 5 30 mpirun --oversubscribe -n 1 sh "$note_status" "$@" : -n 2 "$@" >"$work/out" 2>"$work/err" </dev/null
        status=$(cat "$NOTE" 2>/dev/null || echo 255)
    fi
    wait_for 3 gone || left=$(ranks_alive)
    if [ -n "${left:-}" ]; then
        not_ok "$name: nobody is left" "still alive: $left"
        for pid in $left; do kill -9 "$pid"; done
    elif ! named_in_time "$rank" "$limit"; then
        not_ok "$name: named within $limit ms" "took $took ms"
    elif ! says_what_it_did "$rank" "$place" "$action"; then
        not_ok "$name: it is said what it did" "want $pattern"
    elif [ "$status" -ne "$(want_status "$rank" "$action")" ]; then
        not_ok "$name: the right status" "status $status, want $(want_status "$rank" "$action")"
    else
        ok "$name: named after $took ms, status $status"
    fi
}

# beside RANK PLACE ACTION
beside() {
    (one "$@") >"$work/said-$1-$2-$3" 2>&1 &
    running=$((${running:-0} + 1))
    [ $((running % side_by_side)) -ne 0 ] || wait
}

for rank in 0 1 2; do
    for place in load prefill decode idle; do
        for action in kill stop exit error; do
            beside $rank $place $action
        done
    done
done
for fault in '0 measure kill' '0 measure stop' '2 measure kill' '2 measure stop' '2 measure error'; do
    # shellcheck disable=SC2086
    beside $fault
done
wait
cat "$work"/said-*
n_bad=$(cat "$work"/said-* | grep -c '^not ok')
finish
