# tally - count test cases in ctest's LastTest.log, and say which failed or were skipped.
#
# cmocka programs: their summary lines, "[  PASSED  ] N test(s)." and the like. Shell tests: lines "ok NAME",
# "not ok NAME", "skip NAME: reason". A program that prints neither counts as one case; one that ends badly without
# saying which case failed (a crash, a time limit) counts as one failure more and is named.
# The last line is exactly "N passed, N failed, N skipped". Status 0 only when something passed and nothing failed.
# Station before: ctest, called by run.sh.

function list(what, text,    line) {
    line = what ": " program (logged_in ~ /sanitize/ ? " (sanitized)" : "") ": " text
    if (!(line in listed)) {
        listed[line] = 1
        lines[++n_lines] = line
    }
}

function close_program(ended_well) {
    if (program == "") return
    if (!ended_well && failed == 0) {
        failed = 1
        list("failed", "crashed or ran out of time")
    }
    if (ended_well && passed + failed + skipped == 0) passed = 1
    passed_all += passed
    failed_all += failed
    skipped_all += skipped
    program = ""
}

FNR == 1 { close_program(0) }

/^[0-9]+\/[0-9]+ Testing: / {
    close_program(0)
    program = $3
    logged_in = FILENAME
    passed = failed = skipped = 0
    reason = "the test does not say why"
}

# ctest logs a program that does not exist as passed, with an empty command.
/^Command: ""$/ {
    failed++
    list("failed", "the program is not there")
}

/^skipped: / { reason = substr($0, 9) }
/^\[  PASSED  \] [0-9]+ test/ { passed += $4 }
/^\[  FAILED  \] [0-9]+ test/ { failed += $4; next }
/^\[  SKIPPED \] [0-9]+ test/ { skipped += $4; next }
/^\[  FAILED  \] / { list("failed", $4) }
/^\[  SKIPPED \] / {
    if (!(program SUBSEP $4 in reasons)) reasons[program, $4] = reason
    list("skipped", $4 ": " reasons[program, $4])
    reason = "the test does not say why"
}

/^ok / { passed++ }
/^not ok / { failed++; list("failed", substr($0, 8)) }
/^skip / { skipped++; list("skipped", substr($0, 6)) }

/^Test Passed\.$/ { close_program(1) }
/^Test Failed\.$/ { close_program(0) }

END {
    close_program(0)
    for (i = 1; i <= n_lines; i++) print lines[i]
    printf "%d passed, %d failed, %d skipped\n", passed_all, failed_all, skipped_all
    exit passed_all == 0 || failed_all > 0
}
