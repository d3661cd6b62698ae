#!/bin/sh
# test_tally - tally.awk counts what happened: cases that pass, fail or are skipped, crashes, programs that are not there.
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0

# entry NAME VERDICT [OUTPUT...] - one program, as ctest logs it.
entry() {
    printf '1/1 Testing: %s\nCommand: "%s"\nOutput:\n' "$1" "${command-$1}"
    verdict=$2
    shift 2
    [ $# -eq 0 ] || printf '%s\n' "$@"
    printf '<end of output>\nTest %s.\n' "$verdict"
}

# expect WHAT STATUS LAST_LINE - of tally.awk over the log on standard input.
expect() {
    awk -f "$here/tally.awk" - >"$work/out"
    status=$?
    if [ "$status" -eq "$2" ] && [ "$(tail -n 1 "$work/out")" = "$3" ]; then
        echo "ok $1"
    else
        cat "$work/out"
        echo "not ok $1"
        bad=1
    fi
}

entry a Passed '[  PASSED  ] 3 test(s).' '[  SKIPPED ] x' '[  SKIPPED ] 1 test(s), listed below:' '[  SKIPPED ] x' |
    expect "cmocka cases are counted, skipped ones too" 0 "3 passed, 0 failed, 1 skipped"
entry a Failed '[  FAILED  ] y' '[  PASSED  ] 1 test(s).' '[  FAILED  ] 1 test(s), listed below:' '[  FAILED  ] y' |
    expect "a failed case is counted once and fails the run" 1 "1 passed, 1 failed, 0 skipped"
{
    entry a Passed 'ok one' 'skip two: no data'
    entry b Failed 'ok three' 'not ok four'
} | expect "shell cases are counted" 1 "2 passed, 1 failed, 1 skipped"
{
    entry a Passed 'ok one'
    entry b Failed
} | expect "a crash or a time limit is one failure" 1 "1 passed, 1 failed, 0 skipped"
{
    entry a Passed 'ok one'
    command='' entry b Passed
} | expect "a program that is not there is one failure" 1 "1 passed, 1 failed, 0 skipped"
{
    entry a Passed 'ok one'
    printf '2/2 Testing: b\nOutput:\nok two\n'
} | expect "a log that breaks off is a failure" 1 "2 passed, 1 failed, 0 skipped"
entry a Passed | expect "a program without cases is one case" 0 "1 passed, 0 failed, 0 skipped"
entry a Passed 'skip one: no data' | expect "nothing passed is no success" 1 "0 passed, 0 failed, 1 skipped"
exit "$bad"
