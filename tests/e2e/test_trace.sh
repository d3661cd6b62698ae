#!/bin/sh
# test_trace - --stats and --trace: what they print and write keeps to its form, and the numbers hold together.
#
#   sh test_trace.sh TANDEM TOOLS
#
# The trace has one event a line, so awk reads it; schema_check reads it as JSON, against trace.schema.json.
. "$(dirname "$0")/lib.sh"

schema=$here/trace.schema.json
tokens=30

# traced RANKS OPTION... - generate with a trace in $work/trace.json; 0 ranks: without mpirun.
traced() {
    on=$1
    shift
    rm -f "$work/trace.json"
    tandem_on "$on" generate -q --stats -m "$demo_model" -p 'Once upon a time' -n $tokens --temp 0 --ignore-eos \
        --trace "$work/trace.json" "$@"
}

keeps_to_schema() {
    "$TOOLS/schema_check" "$schema" <"$1" >>"$work/err"
}

# Every batch: one compute slice in each stage, one begin and one end of each hop; slices of a rank do not overlap
# (1 ns for rounding), layers are inside of compute, and no hop arrives before it left by more than the clocks' error.
# Prints what is wrong.
judge() {
    awk -v stages="$1" -v batches="$2" -v layers="$3" '
    function field(name,   at, rest) {
        at = index($0, "\"" name "\":")
        if (at == 0) return ""
        rest = substr($0, at + length(name) + 3)
        match(rest, /[,}]/)
        rest = substr(rest, 1, RSTART - 1)
        gsub(/"/, "", rest)
        return rest
    }
    function bad(what) { print what; n_bad++ }
    NR == 1 {
        rest = $0
        while (match(rest, /"clock_error_ns":[0-9]+/)) {
            error_us += substr(rest, RSTART + 17, RLENGTH - 17) / 1000
            rest = substr(rest, RSTART + RLENGTH)
        }
        next
    }
    /"ph":"M"/ { names++ }
    /"ph":"X"/ {
        pid = field("pid"); begin = field("ts") + 0; end = begin + field("dur"); cat = field("cat")
        n[pid " " cat]++
        if (cat == "layer") next
        if (begin < last[pid] - 0.0015) bad("rank " pid ": a slice begins at " begin " before one ends at " last[pid])
        last[pid] = end
    }
    /"ph":"s"/ { left[field("id")] = field("ts") + 0; n_left++ }
    /"ph":"f"/ { arrived[field("id")] = field("ts") + 0; n_arrived++ }
    END {
        if (names != stages + 1) bad(names " ranks, want " stages + 1)
        for (i = 1; i <= stages; i++) {
            if (n[i " compute"] != batches) bad("rank " i ": " n[i " compute"] " compute slices, want " batches)
            if (n[i " wait"] == 0) bad("rank " i " never waited")
            total += n[i " layer"]
        }
        if (total != layers * batches) bad(total + 0 " layer slices, want " layers * batches)
        if (n_left != (stages + 1) * batches || n_arrived != n_left) bad(n_left " hops left, " n_arrived " arrived")
        for (id in left)
            if (arrived[id] < left[id] - error_us - 0.0015) bad("hop " id " arrived at " arrived[id] ", left at " left[id])
        exit n_bad > 0
    }' "$work/trace.json" >>"$work/err"
}

# good_trace NAME STAGES LAYERS - of the last run. 30 tokens are 30 batches: the prompt is one of them.
good_trace() {
    check "$1: the run ends well" [ "$status" -eq 0 ]
    check "$1: the trace keeps to its schema" keeps_to_schema "$work/trace.json"
    check "$1: every batch is in it, on every rank and hop, in order" judge "$2" $tokens "$3"
}

# The shares of each stage add up to 100 (rounded to 0.1), and other is small.
shares() {
    awk -v stages="$1" '
    $1 ~ /^[0-9]+$/ && /\|.*\|/ {
        n++
        split($0, part, "|")
        split(part[2], share, " ")
        sum = 0
        for (i = 1; i <= 6; i++) sum += share[i]
        if (sum < 99.6 || sum > 100.4 || share[6] + 0 > 2) bad = 1
    }
    END { exit bad || n != stages }' "$work/err"
}

good_stats() {
    check "$1: the shares of each stage's time add up" shares "$2"
    check "$1: hops are measured" [ "$(grep -cE '^[0-9]+ -> [0-9]+ ' "$work/err")" -eq $(($2 + 1)) ]
    check "$1: says what a token cost, and the bubble" grep -qE '^bubble: [0-9.]+%' "$work/err"
}

traced 0 --stages 3
good_stats "3 stages in one process" 3
good_trace "3 stages in one process" 3 0
traced 0 --stages 2 --trace-layers
good_trace "2 stages with layers" 2 9 # 8 layers and the output head
traced 4
good_stats "4 ranks" 3
good_trace "4 ranks" 3 0
traced 2 --trace-layers
good_trace "2 ranks with layers" 1 9

cp "$work/trace.json" "$work/spoilt.json"
sed -i '$!s/"cat":"compute"/"cat":"thinking"/' "$work/spoilt.json"
"$TOOLS/schema_check" "$schema" <"$work/spoilt.json" >"$work/out"
check "the schema sees an event that is none" [ $? -eq 1 ]

tandem generate -q -m "$demo_model" -p 'Once' -n 2 --trace "$work/no/such/folder.json"
expect_error "a trace that cannot be written is said before any work" 2 'trace.*No such file'

if command -v gnuplot >/dev/null; then
    run sh "$top/cluster/plot-trace" "$work/trace.json" "$work/plot"
    check "plot-trace draws SVG" grep -q '</svg>' "$work/plot.svg"
    check "plot-trace draws PNG" [ "$(head -c 4 "$work/plot.png" | tail -c 3)" = PNG ]
else
    skip "plot-trace draws" "there is no gnuplot; cluster/setup.sh --plots installs it"
fi
finish
