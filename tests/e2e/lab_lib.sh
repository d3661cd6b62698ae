# shellcheck shell=sh
# lab_lib - sourced behind lib.sh by the tests that need the network lab: is it possible here, and does it go away?
#
# Station before: lib.sh. Stations after: test_lab, test_slurm.

export TANDEM_LAB="/run/tandem-lab-$$"
lab_sh=$top/cluster/lab/lab.sh
store=$(mktemp -d /var/tmp/test-lab.XXXXXX) || exit 1 # every machine has a /tmp of its own
trap '[ ! -d "$TANDEM_LAB" ] || sh "$lab_sh" down; clean_up; rm -rf "$store"' EXIT

# cannot_run - why not, or fails.
cannot_run() {
    [ "$(id -u)" -eq 0 ] || { echo "not root" && return; }
    [ -f /etc/debian_version ] || { echo "not Debian" && return; }
    [ -e /sys/fs/cgroup/cgroup.controllers ] || [ -e /sys/fs/cgroup/memory ] || { echo "no memory control groups" && return; }
    command -v ip >/dev/null && command -v tc >/dev/null || return 1 # a failure, since apt-get has it
    unshare --net --uts --mount sh -c 'ip link add bridge type bridge && ip link add port1 type veth peer name port2 &&
        tc qdisc add dev port1 root tbf rate 1gbit burst 128kb limit 1mb' 2>"$work/err" && return 1
    echo "this kernel has not all of namespaces, bridge, veth and tbf: $(head -n 1 "$work/err")"
}
# lab_or_skip NAME - on root's Debian with such a kernel all of it must run; elsewhere it is skipped by name.
lab_or_skip() {
    reason=$(cannot_run) || reason=
    [ -n "$reason" ] || return 0
    skip "$1" "$reason"
    finish
}

# lab VERB... - fills $work/out, $work/err and $status.
lab() {
    run sh "$lab_sh" "$@"
}
