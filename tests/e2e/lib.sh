# shellcheck shell=sh
# lib - sourced by the end-to-end tests: runs tandem with a time limit, judges cases, and leaves no rank behind.
#
#   sh test_NAME.sh TANDEM TOOLS [ARGUMENT]    the program, the folder of make_model and json_pick
#
# A case prints one line, "ok NAME", "not ok NAME" or "skip NAME: reason"; finish ends the script with status 1 if one
# was not ok. Station before: ctest (tests.cmake). Station after: tally.awk, which counts the lines.
set -u

TANDEM=$1
TOOLS=$2
here=$(cd "$(dirname "$0")" && pwd) || exit 1
top=$(cd "$here/../.." && pwd) || exit 1
# shellcheck source=../../cluster/mpi_env.sh
. "$top/cluster/mpi_env.sh"

work=$(mktemp -d) || exit 1
limit_s=60
n_bad=0
# Every process that a test starts inherits this, so that leftovers are found whoever their parent is.
export TANDEM_TEST_TAG="tag-$$-${work##*.}"

ok() {
    printf 'ok %s\n' "$1"
}

# not_ok NAME [WHY] - shows what the last run printed.
not_ok() {
    printf -- '-- %s\n' "${2:-}"
    for f in out err; do
        [ -s "$work/$f" ] && printf -- '-- std%s:\n' "$f" && tail -c 2000 "$work/$f" | tail -n 15
    done
    printf '\nnot ok %s\n' "$1"
    n_bad=$((n_bad + 1))
}

skip() {
    printf 'skip %s: %s\n' "$1" "$2"
}

# check NAME COMMAND... - ok when the command succeeds.
check() {
    name=$1
    shift
    if "$@"; then ok "$name"; else not_ok "$name" "$*"; fi
}

finish() {
    [ "$n_bad" -eq 0 ]
    exit
}

# ranks_alive - the process ids of this script's tandem processes.
ranks_alive() {
    grep -lszx "TANDEM_TEST_TAG=$TANDEM_TEST_TAG" /proc/[0-9]*/environ 2>/dev/null | while read -r e; do
        pid=${e#/proc/}
        pid=${pid%/environ}
        [ "$(readlink "/proc/$pid/exe" 2>/dev/null)" = "$(readlink -f "$TANDEM")" ] && echo "$pid"
    done
}

# pid_of RANK - of the one that is alive, or nothing.
pid_of() {
    for pid in $(ranks_alive); do
        grep -qszx "OMPI_COMM_WORLD_RANK=$1" "/proc/$pid/environ" && echo "$pid" && return
    done
}

clean_up() {
    for pid in $(ranks_alive); do kill -9 "$pid" 2>/dev/null; done
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM

# data NAME - the path of a test file; fails when it is in neither place.
data() {
    for d in "$top/tests/data" "${TANDEM_TEST_DATA:-$top/../shared/data}"; do
        [ -r "$d/$1" ] && printf '%s\n' "$d/$1" && return
    done
    return 1
}

# shellcheck disable=SC2034 # the scripts use it
demo_model=$top/cluster/models/demo-q8_0.gguf

# model NAME KEY=VALUE... - make a model once; its path is $work/NAME.gguf.
model() {
    made=$work/$1.gguf
    [ -f "$made" ] && return
    shift
    "$TOOLS/make_model" "$made" "$@" || exit 1
}

# run COMMAND... - with a time limit; fills $work/out, $work/err and $status (124: it ran out of time).
run() {
    timeout -k 5 "$limit_s" "$@" >"$work/out" 2>"$work/err" </dev/null
    status=$?
}

# tandem_on RANKS ARGUMENT... - run tandem on so many ranks; 0: without mpirun.
tandem_on() {
    ranks=$1
    shift
    if [ "$ranks" -eq 0 ]; then
        run "$TANDEM" "$@"
    else
        run mpirun --oversubscribe -n "$ranks" "$TANDEM" "$@"
    fi
}

tandem() {
    tandem_on 0 "$@"
}

# json PATH [LINE] - one value of a line of $work/out.
json() {
    sed -n "${2:-1}p" "$work/out" | "$TOOLS/json_pick" "$1"
}

# golden FILE PATH
golden() {
    "$TOOLS/json_pick" "$2" <"$1"
}

now_ms() {
    echo $(($(date +%s%N) / 1000000))
}

# wait_for SECONDS COMMAND... - try every 20 ms until the command succeeds; fails when the time is over.
wait_for() {
    until_ms=$(($(now_ms) + $1 * 1000))
    shift
    until "$@"; do
        [ "$(now_ms)" -lt "$until_ms" ] || return 1
        sleep 0.02
    done
}

# expect_error NAME STATUS PATTERN - the last run ended so, with one line on standard error that matches.
expect_error() {
    if [ "$status" -ne "$2" ]; then
        not_ok "$1" "status $status, want $2"
    elif [ "$(wc -l <"$work/err")" -ne 1 ]; then
        not_ok "$1" "want one line on standard error"
    elif ! grep -qE -- "$3" "$work/err"; then
        not_ok "$1" "the line does not say '$3'"
    else
        ok "$1"
    fi
}
