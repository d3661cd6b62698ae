#!/bin/sh
# lab - a cluster inside one Linux machine: "machines" with a network, a host name, a /tmp and a memory limit of their own.
#
#   sh cluster/lab/lab.sh up N [--rate 1gbit] [--memory 400M[,400M...]] [--share FOLDER]...
#   sh cluster/lab/lab.sh run [TANDEM-RUN OPTION...] VERB [ARGUMENT...]   a line over all machines, started on n1
#   sh cluster/lab/lab.sh on MACHINE COMMAND...                           on one of them
#   sh cluster/lab/lab.sh hide FILE MACHINE...                            these machines do not have the file
#   sh cluster/lab/lab.sh cut MACHINE       takes its interface down; "mend MACHINE" brings it up
#   sh cluster/lab/lab.sh sent MACHINE      bytes that have left through its interface so far
#   sh cluster/lab/lab.sh status            what each may use, used at most, and whether the kernel had to kill
#   sh cluster/lab/lab.sh down              removes all of it, with every process in it
#
# Needs root and Linux with network, UTS and mount namespaces, veth, bridge, tbf and memory control groups (v1 or v2).
#
#     n1 10.77.0.1       n2 10.77.0.2        …       a machine: a process that sleeps in its namespaces and control group
#        eth0 (tbf)         eth0 (tbf)
#          │ veth             │
#     ─────┴──────────────────┴── bridge ──           a switch: the same without a name; the host's network sees nothing
#
# The file system is shared, as NFS would do it, but for /tmp; of the host's /tmp a machine sees the repository and what
# was shared. State: TANDEM_LAB (default /run/tandem-lab), so several labs can stand side by side.
# Stations after: cluster/tandem-run, which Open MPI's daemons follow into the machines by "lab.sh agent".
set -u

here=$(cd "$(dirname "$0")" && pwd) || exit 1
cluster=$(cd "$here/.." && pwd) || exit 1
top=$(cd "$cluster/.." && pwd) || exit 1 # the repository, or share/ of an installation
self=$here/lab.sh
lab=${TANDEM_LAB:-/run/tandem-lab}
name=${lab##*/}
subnet=10.77.0

fail() {
    printf 'lab: %s\n' "$*" >&2
    exit 1
}

# must COMMAND... - or the end, with what it printed.
must() {
    said=$("$@" 2>&1) || fail "$* failed: $said"
}

is_number() {
    case $1 in '' | *[!0-9]* | 0* | ????*) return 1 ;; esac
}

is_rate() {
    case $1 in *[kmg]bit) is_number "${1%?bit}" ;; *) return 1 ;; esac
}

# ---- control groups: one a machine, which also is the list of its processes ----

group_root() {
    if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
        echo /sys/fs/cgroup
    elif [ -d /sys/fs/cgroup/memory ]; then
        echo /sys/fs/cgroup/memory
    else
        fail "no memory control groups at /sys/fs/cgroup"
    fi
}

group_of() {
    echo "$groups/$name-$1"
}

# group_read MACHINE V2_FILE V1_FILE - the first of the two files that is there.
group_read() {
    for file in "$2" "$3"; do
        cat "$(group_of "$1")/$file" 2>/dev/null && return
    done
}

# make_group MACHINE MEMORY - no MEMORY: no limit.
make_group() {
    group=$(group_of "$1")
    [ -d /sys/fs/cgroup/memory ] || grep -qw memory "$groups/cgroup.subtree_control" ||
        echo +memory >"$groups/cgroup.subtree_control" || fail "cannot turn on memory control in $groups"
    must mkdir "$group"
    [ -n "$2" ] || return 0
    file=$group/memory.max
    [ -f "$file" ] || file=$group/memory.limit_in_bytes
    { echo "$2" >"$file"; } 2>/dev/null || fail "a machine of $2: no such limit"
    [ ! -f "$group/memory.swap.max" ] || echo 0 >"$group/memory.swap.max"
}

# ---- machines ----

machines() {
    cat "$lab/machines" 2>/dev/null
}

# pid_of MACHINE - the sleeper's.
pid_of() {
    cat "$lab/$1/pid" 2>/dev/null || fail "no machine $1; there are: $(machines | tr '\n' ' ')"
}

# on MACHINE COMMAND... - becomes it, in the same working folder. Its root is its sleeper's, which matters in a chroot.
on() {
    pid=$(pid_of "$1") || exit 1
    # 0 is who writes: $$ of a subshell is its parent.
    echo 0 >"$(group_of "$1")/cgroup.procs" || fail "cannot join the control group of $1"
    shift
    # shellcheck disable=SC2016 # the inner shell's
    exec nsenter --target "$pid" --net --uts --mount --root --wd sh -c 'cd "$0" 2>/dev/null || cd / && exec "$@"' "$PWD" "$@"
}

# sleep_in MACHINE UNSHARE_OPTION... - start the process that holds its namespaces, deaf to our terminal.
sleep_in() {
    machine=$1
    shift
    mkdir -p "$lab/$machine" || exit 1
    # shellcheck disable=SC2016 # the inner shell's
    setsid unshare "$@" sh -c 'echo $$ >"$0/pid.new" && mv "$0/pid.new" "$0/pid" && cd / && exec sleep infinity' \
        "$lab/$machine" </dev/null >"$lab/$machine/log" 2>&1 &
    tries=100
    until [ -s "$lab/$machine/pid" ]; do
        [ $((tries -= 1)) -gt 0 ] || fail "$machine does not start: $(cat "$lab/$machine/log")"
        sleep 0.05
    done
}

# furnish MACHINE - inside: its name, its /etc/hosts, and a /tmp that keeps only the shared folders.
furnish() {
    outer=$lab/$1/outer
    must hostname "$1"
    must mount --bind "$lab/hosts" /etc/hosts
    must mkdir -p "$outer"
    must mount --rbind /tmp "$outer"
    must mount -t tmpfs -o size=64m tmpfs /tmp
    while read -r folder; do
        case $folder in
        /tmp/*)
            must mkdir -p "$folder"
            must mount --bind "$outer/${folder#/tmp/}" "$folder"
            ;;
        esac
    done <"$lab/shares"
    must umount --lazy "$outer"
    must ip link set lo up
}

# pace WHERE INTERFACE RATE - WHERE: the words before a command that take it there. What fits into the bucket of tbf passes
# unpaced, and with room for less than a few packets it falls behind: so packets, which veth lets grow to 64 kB, stay small.
pace() {
    # shellcheck disable=SC2086 # words
    must $1 ip link set "$2" gso_max_size 8192
    # shellcheck disable=SC2086
    must $1 tc qdisc add dev "$2" root tbf rate "$3" burst 24kb limit 1mb
}

# plug MACHINE NUMBER RATE - a cable to the switch, paced in both directions.
plug() {
    switch="nsenter --target $(pid_of switch) --net"
    inside="nsenter --target $(pid_of "$1") --net"
    # shellcheck disable=SC2086 # words
    {
        must $switch ip link add "port$2" type veth peer name eth0 netns "$(pid_of "$1")"
        must $switch ip link set "port$2" master bridge up
        must $inside ip address add "$subnet.$2/24" dev eth0
        must $inside ip link set eth0 up
        [ -n "$3" ] || return 0
        pace "$switch" "port$2" "$3"
        pace "$inside" eth0 "$3"
    }
}

# nth LIST N - of a comma list; its last, where it is shorter.
nth() {
    printf '%s\n' "$1" | awk -F, -v n="$2" '{ print $(n < NF ? n : NF) }'
}

# ---- the verbs ----

up() {
    n=${1:-}
    { is_number "$n" && [ "$n" -le 64 ]; } || fail "up wants a number of machines, 1 to 64, got '$n'"
    shift
    rate=
    memory=
    shares="$top
$PWD"
    while [ $# -gt 0 ]; do
        [ $# -ge 2 ] || fail "$1 wants a value"
        case $1 in
        --rate)
            rate=$2
            is_rate "$rate" || fail "--rate wants a number and kbit, mbit or gbit, got '$rate'"
            ;;
        --memory) memory=$2 ;;
        --share)
            folder=$(cd "$2" 2>/dev/null && pwd) || fail "--share wants a folder, got '$2'"
            shares="$shares
$folder"
            ;;
        *) fail "unknown option $1; see the head of $self" ;;
        esac
        shift 2
    done
    for tool in ip tc nsenter setsid unshare; do
        command -v $tool >/dev/null || fail "$tool is missing: apt-get install iproute2 util-linux"
    done
    [ ! -e "$lab" ] || fail "$lab is there already: lab.sh down removes it"
    must mkdir "$lab"
    seq "$n" | sed 's/^/n/' >"$lab/machines"
    trap '[ $? -eq 0 ] || down' EXIT # half a lab is none
    trap 'exit 1' INT TERM
    printf '%s\n' "$shares" | sort -u | grep -vx /tmp >"$lab/shares"
    { echo "127.0.0.1 localhost" && seq "$n" | sed "s/.*/$subnet.& n&/"; } >"$lab/hosts"

    sleep_in switch --net
    # shellcheck disable=SC2046 # a number
    must nsenter --target $(pid_of switch) --net sh -c 'ip link add bridge type bridge && ip link set bridge up'
    for i in $(seq "$n"); do
        make_group "n$i" "$(nth "$memory" "$i")"
        sleep_in "n$i" --net --uts --mount
        (on "n$i" sh "$self" furnish "n$i") || exit 1
        pid_of "n$i" >"$(group_of "n$i")/cgroup.procs" || fail "cannot put n$i into its control group"
        plug "n$i" "$i" "$rate"
        printf 'n%d  %s.%d  rate %s, memory %s\n' "$i" "$subnet" "$i" "${rate:-unlimited}" \
            "$(nth "${memory:-unlimited}" "$i")"
    done
}

run() {
    export OMPI_MCA_plm_rsh_agent="sh $self agent"
    # shellcheck source=../mpi_env.sh
    . "$cluster/mpi_env.sh"
    on n1 "$cluster/tandem-run" --hosts "$(machines | paste -s -d , -)" --iface eth0 "$@"
}

hide() {
    file=$1
    shift
    folder=$(cd "$(dirname "$file")" && pwd) || exit 1
    file=${file##*/}
    [ -e "$folder/$file" ] || fail "$folder/$file is not there"
    [ $# -gt 0 ] || fail "hide FILE wants machines behind the file"
    case $folder in *[,:\\]*) fail "$folder: an overlay wants a path without , : and \\" ;; esac
    for machine; do
        pid_of "$machine" >/dev/null
        cover=$lab/$machine/hidden-$(date +%s%N)
        must mkdir -p "$cover/upper" "$cover/work"
        must mknod "$cover/upper/$file" c 0 0 # how an overlay says that a file is gone
        (on "$machine" mount -t overlay -o "lowerdir=$folder,upperdir=$cover/upper,workdir=$cover/work" overlay \
            "$folder") || fail "cannot hide $file from $machine"
    done
}

status() {
    [ -d "$lab" ] || fail "no lab at $lab"
    printf '%-8s  %12s  %12s  %s\n' machine "may use" "used at most" "killed by the kernel"
    for machine in $(machines); do
        printf '%-8s  %8d MiB  %8d MiB  %d\n' "$machine" \
            "$(group_read "$machine" memory.max memory.limit_in_bytes | awk '{ print ($1 == "max" || $1 > 2^50 ? 0 : int($1 / 2^20)) }')" \
            "$(group_read "$machine" memory.peak memory.max_usage_in_bytes | awk '{ print int($1 / 2^20) }')" \
            "$(group_read "$machine" memory.events memory.oom_control | awk '$1 == "oom_kill" { print $2 }')"
    done
}

# sent MACHINE - /sys would show the interfaces of whoever mounted it.
sent() {
    # shellcheck disable=SC2016 # awk's
    on "$1" awk '$1 == "eth0:" { print $10 }' /proc/net/dev
}

# down - safe at any time, and twice.
down() {
    [ ! -e "$lab" ] || [ -f "$lab/machines" ] || fail "$lab is no lab: not removed"
    for group in "$groups/$name"-n*; do
        [ -d "$group" ] || continue
        tries=100
        until rmdir "$group" 2>/dev/null; do
            [ $((tries -= 1)) -gt 0 ] || fail "$group does not become empty"
            while read -r pid; do kill -KILL "$pid" 2>/dev/null; done <"$group/cgroup.procs"
            sleep 0.05
        done
    done
    for file in "$lab"/*/pid; do
        # Only a sleeper: the number may be another's by now.
        [ ! -f "$file" ] || ! grep -qs '^sleep' "/proc/$(cat "$file")/cmdline" || kill -KILL "$(cat "$file")"
    done
    rm -rf "$lab"
}

verb=${1:-}
[ $# -eq 0 ] || shift
[ "$(id -u)" -eq 0 ] || fail "namespaces and control groups want root"
groups=$(group_root) || exit 1
case $verb in
up | run | hide | status | down) "$verb" "$@" ;;
on)
    [ $# -ge 2 ] || fail "on wants a machine and a command"
    on "$@"
    ;;
cut | mend | sent)
    [ $# -eq 1 ] || fail "$verb wants one machine"
    case $verb in
    cut) on "$1" ip link set eth0 down ;;
    mend) on "$1" ip link set eth0 up ;;
    sent) sent "$1" ;;
    esac
    ;;
furnish) furnish "$@" ;; # up calls it inside the machine
agent) # Open MPI calls it as it would ssh: HOST COMMAND
    machine=$1
    shift
    on "$machine" sh -c "$*"
    ;;
*) fail "up, run, on, hide, cut, mend, sent, status or down? See the head of $self" ;;
esac
