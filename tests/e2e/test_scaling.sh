#!/bin/sh
# test_scaling - cluster/scaling.sh --quick: all experiments are in the CSV, and the plots are drawn.
#
#   sh test_scaling.sh TANDEM TOOLS
#
# No figure is judged. Without gnuplot there are no plots, and that is said.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

limit_s=240
out=$work/results
plots=
if ! command -v gnuplot >/dev/null; then plots=--no-plots; fi
run sh "$top/cluster/scaling.sh" --quick --workers 2 --tandem "$TANDEM" --out "$out" $plots
check "scaling.sh --quick succeeds" [ "$status" -eq 0 ]
check "it leaves nothing but the results" [ "$(find "$out" -type f ! -name '*.csv' ! -name '*.svg' ! -name '*.png' | wc -l)" -eq 0 ]

# Each experiment has its runs, each line as many columns as the header (a wire's name has a comma inside quotes).
whole() {
    awk '
        function bad(what) { print "line " NR ": " what; n_bad++ }
        {
            line = $0
            gsub(/"[^"]*"/, "quoted", line)
            n = split(line, f, ",")
        }
        NR == 1 {
            n_columns = n
            if ($0 !~ /^experiment,workers,wire,table,version,model,ranks,/) bad("the header is " $0)
            next
        }
        n != n_columns { bad(n " columns, want " n_columns) }
        f[7] != f[2] + 1 { bad(f[7] " ranks for " f[2] " workers") }
        f[4] == "run" { runs[f[1] f[2]]++ }
        END {
            for (w = 1; w <= 2; w++) if (runs["strong" w] != 2 || runs["weak" w] != 2) bad("runs of " w " workers are missing")
            if (runs["sizes2"] != 6 || runs["wire2"] != 6) bad("runs of the message sizes are missing")
            exit n_bad > 0
        }' "$out/scaling.csv" >>"$work/err"
}
check "the CSV has every experiment" whole

for plot in speedup shares hops; do
    if [ -n "$plots" ]; then
        skip "$plot is drawn" "there is no gnuplot (cluster/setup.sh --plots)"
    else
        check "$plot is drawn as SVG" grep -q '</svg>' "$out/$plot.svg"
        check "$plot is drawn as PNG" [ "$(head -c 4 "$out/$plot.png" | tail -c 3)" = PNG ]
    fi
done

run sh "$top/cluster/scaling.sh" --workers none --tandem "$TANDEM" --out "$out"
expect_error "a number of workers that is none is refused" 1 "--workers wants a number, got 'none'"
echo nothing >"$work/nothing.csv"
run sh "$top/cluster/plot-scaling" "$work/nothing.csv" "$work"
if [ -n "$plots" ]; then
    skip "a CSV of something else is refused" "there is no gnuplot (cluster/setup.sh --plots)"
else
    expect_error "a CSV of something else is refused" 1 "nothing.csv has no strong experiment"
fi
finish
