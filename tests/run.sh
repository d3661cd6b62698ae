#!/bin/sh
# run - install what is missing, build, run every test, and say how many passed.
#
#   sh tests/run.sh [--label LABEL] [--isa generic|avx2|avx512|amx] [--sanitize address,undefined]
#
# --label     only the tests of one label: unit, kernels, link, faults, end-to-end.
# --isa       force the instruction set (TANDEM_ISA) for all tests.
# --sanitize  build with these sanitizers only, in a folder of their own, and run what does not need mpirun.
#
# Without --sanitize, the tests that need no mpirun run a second time under the address and undefined sanitizers.
# The last line is exactly "N passed, N failed, N skipped"; it counts cases, not programs (tally.awk). The status is 0
# only when something passed and nothing failed. Large test data is looked for in TANDEM_TEST_DATA, by default
# ../shared/data beside the repository; a test that does not find its data says so and counts as skipped.
# Station before: cluster/setup.sh. Station after: ctest, which knows every test from tests/CMakeLists.txt.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
label=
sanitize=
usage='usage: sh tests/run.sh [--label LABEL] [--isa generic|avx2|avx512|amx] [--sanitize address,undefined]'

fail() {
    printf 'tests: %s\n' "$*" >&2
    exit 1
}

while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || fail "$1: $usage"
    case $1 in
    --label) label=$2 ;;
    --isa) export TANDEM_ISA="$2" ;;
    --sanitize) sanitize=$2 ;;
    *) fail "$1: $usage" ;;
    esac
    shift 2
done

: "${TANDEM_TEST_DATA:=$top/../shared/data}"
export TANDEM_TEST_DATA
# shellcheck source=../cluster/mpi_env.sh
. "$top/cluster/mpi_env.sh"
logs=
status=0

# build FOLDER [-DNAME=VALUE ...]
build() {
    folder=$1
    shift
    sh "$top/cluster/setup.sh" --tests --build "$folder" \
        -DTANDEM_WERROR="${TANDEM_WERROR:-OFF}" "$@" || exit 1
}

# run_tests FOLDER WHAT CTEST_OPTION... - keep the log for tally.awk.
run_tests() {
    folder=$1
    printf '==> tests: %s\n' "$2"
    shift 2
    log=$folder/Testing/Temporary/LastTest.log
    rm -f "$log"
    (cd "$folder" && ctest --output-on-failure --parallel "$(nproc 2>/dev/null || echo 2)" "$@") || status=1
    [ -f "$log" ] && logs="$logs $log"
}

run_release() {
    build "$top/build/release"
    if [ -n "$label" ]; then
        run_tests "$top/build/release" "label $label" -L "^$label\$"
    else
        run_tests "$top/build/release" "all"
    fi
}

# Open MPI's own leaks and speed are not our subject, so nothing under mpirun runs here; and what test_same_bits walks
# through in minutes test_stage does, too.
run_sanitized() {
    folder=$top/build/sanitize-$(printf '%s' "$1" | tr ',' '-')
    build "$folder" -DTANDEM_SANITIZE="$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo
    run_tests "$folder" "under the sanitizers $1" -L "${label:-^(unit|kernels|link)\$}" -E 'mpi|same_bits'
}

if [ -n "$sanitize" ]; then
    run_sanitized "$sanitize"
else
    run_release
    case $label in
    '' | unit | kernels | link) run_sanitized address,undefined ;;
    esac
fi

[ -n "$logs" ] || fail "no test ran"
# shellcheck disable=SC2086 # one word a log
awk -f "$top/tests/tally.awk" $logs || status=1
exit $status
