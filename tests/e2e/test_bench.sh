#!/bin/sh
# test_bench - tandem bench: its JSON keeps to bench.schema.json, its CSV says the same, and the numbers hold together.
#
#   sh test_bench.sh TANDEM TOOLS
#
# No figure is judged, only what must be so on the slowest machine.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

header=table,version,model,ranks
header=$header,rank,host,isa,threads,layers,weight_bytes,kv_bytes,need_bytes,rss_bytes,load_s
header=$header,compute_s,wait_s,send_s,control_s,idle_s,other_s,wall_s
header=$header,from,to,bytes,us_median,us_p99,raw_mpi_us
header=$header,kind,n,seqs,tok_s_median,tok_s_min,tok_s_max,ttft_ms,bubble,predicted_tok_s,read_gb_s
header=$header,format,bytes_per_token,rms,first_differs,positions

# bench RANKS OPTION... - a short one, into $work/bench.json and $work/bench.csv; 0 ranks: without mpirun.
bench() {
    on=$1
    shift
    rm -f "$work/bench.json" "$work/bench.csv"
    tandem_on "$on" bench -q -m "$demo_model" --threads 1 --pp 40,8 --tg 6 --seqs 1,3 --repeat 3 \
        --json "$work/bench.json" --csv "$work/bench.csv" "$@"
}

# judge STAGES - the CSV, line by line. Prints what is wrong.
judge() {
    awk -F , -v stages="$1" -v header="$header" '
    function bad(what) { print "line " NR ": " what; n_bad++ }
    function get(name) { return $at[name] }
    NR == 1 {
        if ($0 != header) bad("the header is " $0)
        for (i = 1; i <= NF; i++) at[$i] = i
        n_columns = NF
        next
    }
    NF != n_columns { bad(NF " columns, want " n_columns) }
    get("ranks") != stages + 1 { bad(get("ranks") " ranks, want " stages + 1) }
    { rows[$1]++ }
    $1 == "stage" {
        if (get("rank") != rows["stage"]) bad("stages are out of order")
        split(get("layers"), layer, "[.][.]")
        if (layer[1] != next_layer + 0 || layer[2] < layer[1]) bad("layers " get("layers"))
        next_layer = layer[2] + 1
        wall = get("wall_s")
        sum = get("compute_s") + get("wait_s") + get("send_s") + get("control_s") + get("idle_s") + get("other_s")
        if (sum < 0.99 * wall || sum > 1.01 * wall) bad("columns add up to " sum " of " wall)
        if (get("other_s") > 0.02 * wall) bad("other is " get("other_s") " of " wall)
        if (get("compute_s") <= 0) bad("no time to compute")
        if (get("rss_bytes") < get("weight_bytes") + get("kv_bytes")) bad("resident: less than it holds")
    }
    $1 == "hop" {
        if (get("to") != (get("from") + 1) % (stages + 1)) bad("a hop from " get("from") " to " get("to"))
        if (get("from") == from && get("bytes") <= bytes) bad("sizes do not ascend")
        from = get("from")
        bytes = get("bytes")
        hops[from]++
        if (get("us_median") != "" && get("us_p99") < get("us_median") + 0) bad("p99 below the median")
        if (get("us_median") != "" && get("us_median") > 0) timed[from]++
        if (get("raw_mpi_us") <= 0) bad("plain messages take no time")
    }
    $1 == "run" {
        run = run " " get("kind") get("n") "x" get("seqs")
        if (get("tok_s_min") <= 0) bad("no token a second")
        if (get("tok_s_median") < get("tok_s_min") + 0 || get("tok_s_max") < get("tok_s_median") + 0)
            bad("the median is outside")
        if (get("ttft_ms") <= 0) bad("the first token takes no time")
        # The first token of a prompt ends its run.
        rate = get("kind") == "pp" ? get("n") * 1000 / get("ttft_ms") : 0
        if (rate > 0 && (rate < 0.9 * get("tok_s_min") || rate > 1.5 * get("tok_s_max")))
            bad("time to the first token: " rate " tokens a second")
        if (get("bubble") == "" || get("bubble") < 0 || get("bubble") > 1) bad("bubble " get("bubble"))
    }
    $1 == "limit" && get("read_gb_s") <= 0 { bad("reads nothing") }
    END {
        if (rows["stage"] != stages || rows["limit"] != stages) bad("stages are missing")
        if (rows["wire"] != 1) bad("no word about the wire")
        for (i = 0; i <= stages; i++) if (hops[i] == 0 || timed[i] == 0) bad("hop " i " is missing")
        if (run != " pp40x1 pp8x1 tg6x1 tg6x3") bad("runs:" run)
        exit n_bad > 0
    }' "$work/bench.csv" >>"$work/err"
}

# same_numbers - the JSON has as many rows as the CSV, and the same figures in some of them.
same_numbers() {
    for pick in stage:stages:compute_s hop:hops:raw_mpi_us run:runs:tok_s_median limit:limit:read_gb_s; do
        row=${pick%%:*}
        member=${pick##*:}
        array=${pick#*:}
        array=${array%:*}
        awk -F , -v row="$row" -v member="$member" '
            NR == 1 { for (i = 1; i <= NF; i++) if ($i == member) column = i }
            $1 == row { print $column }' "$work/bench.csv" >"$work/csv.numbers"
        n=0
        while read -r csv; do
            json=$("$TOOLS/json_pick" "$array.$n.$member" <"$work/bench.json") || return 1
            awk -v a="$csv" -v b="$json" 'BEGIN { d = a - b; exit !(d * d <= 1e-12 * b * b) }' || return 1
            n=$((n + 1))
        done <"$work/csv.numbers"
        [ "$n" -gt 0 ] && ! "$TOOLS/json_pick" "$array.$n.$member" <"$work/bench.json" >/dev/null 2>&1 || return 1
    done
}

keeps_to_schema() {
    "$TOOLS/schema_check" "$here/bench.schema.json" <"$1" >>"$work/err"
}

# judge_bench NAME STAGES - the last run.
judge_bench() {
    check "$1 succeeds" [ "$status" -eq 0 ]
    check "$1: the table has all tests" [ "$(grep -cE '^(pp40|pp8|tg6) ' "$work/out")" -eq 4 ]
    check "$1: the JSON keeps to its schema" keeps_to_schema "$work/bench.json"
    check "$1: the CSV holds together" judge "$2"
    check "$1: JSON and CSV say the same" same_numbers
}

bench 0
judge_bench "bench in one process" 1
bench 0 --stages 3
judge_bench "bench of three stages in one process" 3
bench 3
judge_bench "bench on three ranks" 2

# What the link adds is in the hops, and not in the plain messages: a median for which one hop in two is too fast fails.
slow_wire() {
    awk -F , '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $1 == "hop" && $at["us_median"] != "" {
            n++
            bad += $at["us_median"] < 2900 || $at["raw_mpi_us"] >= 2900
        }
        END { exit !(n > 0 && bad == 0) }' "$work/bench.csv"
}
bench 0 --stages 2 --link-emulate 3ms
check "an emulated wire is in the hops, and not in the plain messages" slow_wire

# What a narrower wire changes is measured against f32 on the same line.
# wire FORMAT MEMBER - of that bench, kept in $work/wire.FORMAT.
wire() {
    "$TOOLS/json_pick" "wire.$2" <"$work/wire.$1"
}
wires_differ() {
    bf16=$(wire bf16 rms) && q8_0=$(wire q8_0 rms) || return 1
    awk -v bf16="$bf16" -v q8_0="$q8_0" 'BEGIN { exit !(0 < bf16 && bf16 < q8_0 && q8_0 < 0.1) }'
}
# says_wire FORMAT - the table has a line about it, the CSV the same figures.
says_wire() {
    share=$(wire "$1" rms) && first=$(wire "$1" first_differs) && bytes=$(wire "$1" bytes_per_token) || return 1
    share=$(awk -v share="$share" 'BEGIN { printf "%.3g", 100 * share }')
    grep -qF "travels in $bytes bytes ($1); against f32 the scores change by $share% of" "$work/out" &&
        grep -q "^wire,.*,$1,$bytes,[0-9.]*,$first,40\$" "$work/bench.csv"
}
for format in f32 bf16 q8_0; do
    bench 0 --stages 2 --wire "$format"
    judge_bench "bench with --wire $format" 2
    cp "$work/bench.json" "$work/wire.$format"
    [ "$format" = f32 ] || check "what --wire $format changes is in the table and in the CSV" says_wire "$format"
done
check "bf16 changes the scores a little, q8_0 more" wires_differ
check "nothing is compared where f32 travels" [ "$(wire f32 rms) $(wire f32 positions)" = "0 0" ]
bench 0 --wire q8_0
cp "$work/bench.json" "$work/wire.alone"
check "one stage has no hop" [ "$(wire alone bytes_per_token) $(wire alone positions)" = "0 0" ]

run "$TANDEM" bench -q -m "$demo_model" --threads 1 --pp 4 --tg 0 --repeat 1 --json -
check "--json - has standard output for itself" keeps_to_schema "$work/out"
run "$TANDEM" bench -q -m "$demo_model" --threads 1 --pp 0 --tg 3 --seqs 2 --repeat 1 --csv -
check "--csv - has standard output for itself" [ "$(sed -n 1p "$work/out")" = "$header" ]

# What cannot be measured is refused before anything is loaded.
while IFS='|' read -r name wants pattern options; do
    # shellcheck disable=SC2086 # options are words
    run "$TANDEM" bench -q -m "$demo_model" $options
    expect_error "$name" "$wants" "$pattern"
done <<EOF
a bench of nothing is refused|1|leave nothing to measure|--pp 0 --tg 0
no list is refused|1|--pp wants numbers between commas, got '8,,9'|--pp 8,,9
no number is refused|1|--tg wants numbers between commas, got '-3'|--tg -3
too many sequences are refused|1|--seqs: 33 is out of range, want 1 to 32|--seqs 1,33
no sequence is refused|1|--seqs: 0 is out of range|--seqs 0
fewer slots than sequences are refused|1|--slots 2 does not hold the 4 sequences|--slots 2 --seqs 4
what is beyond the context is refused|3|--pp 300 and a token more need 301 positions and the context holds 256|--pp 300
two files in one place are refused|1|--json and --csv cannot both go to -|--json - --csv -
a file that cannot be written is refused|2|No such file or directory|--json $work/none/x.json
EOF
# ---- kernels ----

# All of them take minutes: the first ones are enough, and they come as they are found.
"$TANDEM" bench --kernels >"$work/out" 2>"$work/err" &
kernels=$!
kernel_rows() {
    grep -q '^one thread, which reads [0-9.]* GB/s' "$work/out" &&
        [ "$(grep -cE '^matmul +F32 +[0-9]+ +[0-9]+ +(1|512) +[0-9.]+ +[0-9.]+' "$work/out")" -ge 2 ]
}
check "kernels are measured one by one, and shown as they are found" wait_for 60 kernel_rows
kill "$kernels"
wait "$kernels"
tandem bench --kernels --json no/such/file
expect_error "the figures of the kernels as JSON go to standard output" 1 'json -'
finish
