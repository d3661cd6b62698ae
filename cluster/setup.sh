#!/bin/sh
# setup - from a fresh Debian machine to a built program: packages, configuration, build.
#
#   sh cluster/setup.sh [--tests] [--build FOLDER] [-DNAME=VALUE ...]
#   sh cluster/setup.sh --plots        installs gnuplot and nothing else, for the scripts that draw
#
# Station before: nothing but git and a shell. Stations after: cluster/demo.sh and tests/run.sh, which call it.
# Says one line a step and costs nothing when there is nothing to do. What a step prints goes to FOLDER/setup.log,
# whose end is shown when the step fails.
set -u

top=$(cd "$(dirname "$0")/.." && pwd) || exit 1
build=$top/build/release
packages='build-essential cmake pkg-config openmpi-bin libopenmpi-dev libprotobuf-c-dev protobuf-c-compiler
  libpcre2-dev libjansson-dev libopenblas-serial-dev libxxhash-dev help2man'
tests=
plots=

step() {
    printf '==> %s\n' "$*"
}

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

# logged WHAT COMMAND... - run quietly; when it fails, show the end of what it printed and stop.
logged() {
    what=$1
    shift
    printf '\n==> %s\n' "$*" >>"$log"
    "$@" >>"$log" 2>&1 && return
    tail -n 40 "$log" >&2
    fail "$what failed; all of its output is in $log"
}

# As root, through sudo, or not at all; never waiting for a password that nobody can type.
may_install() {
    if [ "$(id -u)" -eq 0 ]; then
        sudo=
    elif ! command -v sudo >/dev/null; then
        return 1
    elif [ -t 0 ]; then
        sudo=sudo
    else
        sudo='sudo -n'
        sudo -n true 2>/dev/null
    fi
}

missing_packages() {
    for p in $packages; do
        case $(dpkg-query -W -f='${Status}' "$p" 2>/dev/null) in
        'install ok installed') ;;
        *) printf '%s ' "$p" ;;
        esac
    done
}

# apt_get WORDS... - without questions; on a machine that has just started, apt's own timers may hold the lock for a while.
apt_get() {
    printf '\n==> apt-get %s\n' "$*" >>"$log"
    $sudo env DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q -o DPkg::Lock::Timeout=300 "$@" >>"$log" 2>&1 </dev/null
}

install_packages() {
    if ! command -v dpkg-query >/dev/null; then
        step "packages: this is not a Debian system, so the libraries must be there already"
        return
    fi
    missing=$(missing_packages)
    missing=${missing% }
    if [ -z "$missing" ]; then
        step "packages: all there"
        return
    fi
    may_install || fail "packages are missing, and this is neither root nor may it use sudo; as root: apt-get install $missing"
    step "packages: installing $missing (minutes; $log tells more)"
    # A source that cannot be reached is no matter as long as another one has what is missing.
    apt_get update
    # shellcheck disable=SC2086 # one word a package
    apt_get -y --no-install-recommends install $missing ||
        fail "apt-get install failed: $(grep -m 1 -E '^(E:|W: Failed to fetch)' "$log"); all of its output is in $log"
}

# configure [-DNAME=VALUE ...] - CMake keeps what an earlier call chose, so that the demo and the tests share a folder.
configure() {
    if [ -n "$tests" ]; then
        set -- -DTANDEM_TESTS=ON "$@"
    elif [ ! -f "$build/CMakeCache.txt" ]; then
        set -- -DTANDEM_TESTS=OFF "$@"
    fi
    if [ ! -f "$build/CMakeCache.txt" ]; then
        set -- -DCMAKE_BUILD_TYPE=Release "$@"
        if command -v ccache >/dev/null; then
            set -- -DCMAKE_C_COMPILER_LAUNCHER=ccache "$@"
        fi
    fi
    step "configure: $shown"
    logged "cmake" cmake -S "$top" -B "$build" "$@"
}

compile() {
    jobs=$(nproc 2>/dev/null || echo 2)
    step "build: $shown, $jobs at a time"
    logged "the build" cmake --build "$build" --parallel "$jobs"
}

while [ $# -gt 0 ]; do
    case $1 in
    --tests)
        tests=yes
        packages="$packages libcmocka-dev"
        # What a few tests look at, and skip by name without. The lab and a real Slurm want root; the service of each stays
        # off where there is no systemd to start it.
        [ "$(id -u)" -ne 0 ] || packages="$packages man-db python3-yaml gnuplot-nox iproute2 slurmctld slurmd slurm-client munge"
        ;;
    --build)
        [ $# -ge 2 ] || fail "--build wants a folder"
        build=$2
        shift
        ;;
    --plots)
        plots=yes
        packages=gnuplot-nox
        ;;
    -D*=*) break ;;
    *) fail "unknown option $1; usage: sh cluster/setup.sh [--tests | --plots] [--build FOLDER] [-DNAME=VALUE ...]" ;;
    esac
    shift
done

shown=${build#"$top"/}
mkdir -p "$build" || fail "cannot make the folder $build"
log=$build/setup.log
: >"$log" || fail "cannot write $log"
install_packages
[ -z "$plots" ] || exit 0
configure "$@"
compile
