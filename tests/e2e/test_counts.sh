#!/bin/sh
# test_counts - the line is one, counted and not timed: sequences share batches, little comes home, stages overlap.
#
#   sh test_counts.sh TANDEM TOOLS
#
# Reads the line that -v prints: "counts: batches B, rows R, home H bytes for S score rows, overlapped O".
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

# count NAME - the number behind or before it in the counts line of the last run.
count() {
    case $1 in
    batches | rows | home | overlapped) sed -n "s/.*counts:.*[ ,]$1 \([0-9]*\).*/\1/p" "$work/err" ;;
    score_rows) sed -n 's/.*counts:.* for \([0-9]*\) score rows.*/\1/p' "$work/err" ;;
    esac
}

# generate RANKS SEQUENCES OPTION... - each sequence has a prompt of 8 ids of its own.
generate() {
    on=$1
    n=$2
    shift 2
    while [ "$n" -gt 0 ]; do
        set -- "$@" --ids "$((n * 7)),20,21,22,23,24,25,$((n * 3))"
        n=$((n - 1))
    done
    tandem_on "$on" generate -v -m "$model" -n 40 --temp 0 --ignore-eos "$@"
    [ "$status" -eq 0 ] && [ -n "$(count batches)" ] && return
    not_ok "generate says its counts" "status $status"
    finish
}

model wide vocab=32000 layers=6
model=$made

# One stage; where several compute at once, each has a group of its own (test_line counts these).
for ranks in 0 2; do
    generate "$ranks" 1
    alone=$(count batches)
    generate "$ranks" 8
    together=$(count batches)
    check "8 sequences on one stage ($ranks ranks) take at most 1.1 times the batches of one: $together, $alone" \
        [ $((together * 10)) -le $((alone * 11)) ]
    check "8 sequences on one stage ($ranks ranks) bring 8 times 40 score rows home" [ "$(count score_rows)" -ge 320 ]
done

for sequences in 1 8; do
    for ranks in 0 3; do
        generate "$ranks" "$sequences"
        home=$(count home)
        rows=$(count score_rows)
        check "greedy brings at most 64 bytes a row home, $sequences sequences on $ranks ranks: $home for $rows" \
            [ "$home" -le $((rows * 64)) ]
    done
done

# Several sequences for each stage; on one core only one stage computes at a time.
for ranks in 0 4; do
    [ "$ranks" -eq 0 ] && where='one process' || where='other ranks'
    if [ "$(nproc)" -lt 2 ]; then
        skip "stages of $where overlap on different batches" "one CPU computes one batch at a time"
        continue
    fi
    # shellcheck disable=SC2046 # two words or none
    generate $ranks 24 $([ "$ranks" -eq 0 ] && echo --stages 3)
    check "stages of $where overlap on different batches: $(count overlapped) times" [ "$(count overlapped)" -gt 0 ]
done
finish
