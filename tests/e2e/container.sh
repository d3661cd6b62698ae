#!/bin/sh
# container - the steps of the Containerfile as plain shell in fresh Debian folders, and then a job of three such pods.
#
#   sh tests/e2e/container.sh FOLDER          takes minutes and the network; FOLDER is kept, and reused
#
# By hand, as root, where neither podman nor a cluster is at hand: it is in no test run. The pods are machines of the
# network lab whose root is the image: sshd as its user, keys as the MPI operator mounts them, its host file, and the
# launcher's words of mpijob.yaml. Needs debootstrap. Station after: cluster/kubernetes/.
set -u

[ $# -eq 1 ] || {
    echo "container: wants a FOLDER" >&2
    exit 1
}
mkdir -p "$1" && store=$(cd "$1" && pwd) || exit 1
top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
files=$top/cluster/kubernetes
export TANDEM_LAB="/run/tandem-lab-$$"

fail() {
    printf 'container: %s\n' "$*" >&2
    exit 1
}

step() {
    printf '==> %s\n' "$*"
}

[ -d "$store/base/etc" ] || {
    step "debootstrap"
    debootstrap --variant=minbase bookworm "$store/base" >"$store/log" 2>&1 || fail "debootstrap: see $store/log"
}

# inside ROOT FOLDER USER COMMAND - with /proc and /dev, in a mount namespace of its own, so that nothing stays mounted.
inside() {
    # shellcheck disable=SC2016 # the inner shells'
    unshare --mount sh -c 'mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && cp /etc/resolv.conf "$0/etc/" &&
        exec chroot "$0" su -s /bin/sh "$2" -c "cd $1 && $3"' "$@"
}

# The lines that continue are joined, comments go; then one instruction a line.
awk '/^#/ || !NF { next } { if (sub(/\\$/, " ")) { printf "%s", $0; next } print }' "$files/Containerfile" >"$store/steps"
while read -r word rest; do
    case $word in
    FROM)
        image=${rest##* AS }
        [ "$image" != "$rest" ] || image=final
        root=$store/$image
        folder=/
        user=root
        step "FROM $rest"
        rm -rf --one-file-system "$root"
        cp -a "$store/base" "$root" || fail "no copy"
        ;;
    COPY)
        step "COPY $rest"
        case $rest in
        --from=*)
            from=${rest#--from=}
            # shellcheck disable=SC2086 # words: stage, source, target
            set -- $from
            mkdir -p "$root$3"
            cp -a "$store/$1$2/." "$root$3/" || fail "COPY $rest"
            ;;
        *)
            mkdir -p "$root${rest#* }"
            git -C "$top" ls-files -z | tar -C "$top" --null -T - -cf - | tar -C "$root${rest#* }" -xf - || fail "COPY $rest"
            ;;
        esac
        ;;
    WORKDIR) folder=$rest ;;
    USER) user=$rest ;;
    RUN)
        step "RUN $rest"
        inside "$root" "$folder" "$user" "$rest" >"$store/log" 2>&1 </dev/null || fail "$(tail -n 20 "$store/log")"
        ;;
    CMD) step "CMD $rest" ;;
    *) fail "what is $word?" ;;
    esac
done <"$store/steps"

step "three pods: a launcher and two workers"
root=$store/final
sh "$top/cluster/lab/lab.sh" up 3 --share "$store" >"$store/log" 2>&1 || fail "$(cat "$store/log")"
trap 'sh "$top/cluster/lab/lab.sh" down' EXIT
keys=$root/home/mpiuser/.ssh
mkdir -p "$keys" "$root/models" "$root/etc/mpi"
[ -s "$keys/id_rsa" ] || ssh-keygen -q -t rsa -N '' -f "$keys/id_rsa" || fail "no key"
cp "$keys/id_rsa.pub" "$keys/authorized_keys"
chown -R 1000:1000 "$keys"
cp "$top/cluster/models/demo-q8_0.gguf" "$root/models/model.gguf"
printf 'n2 slots=1\nn3 slots=1\n' >"$root/etc/mpi/hostfile"
cp "$TANDEM_LAB/hosts" "$root/etc/hosts"

# pod MACHINE COMMAND - as the image's user, in the background of its machine.
pod() {
    # shellcheck disable=SC2016 # the inner shells'
    sh "$top/cluster/lab/lab.sh" on "$1" sh -c 'mount -t proc proc "$0/proc"; mount --rbind /dev "$0/dev"; mount --rbind /sys "$0/sys"
        exec chroot "$0" su -s /bin/sh mpiuser -c "cd /home/mpiuser && $1"' "$root" "$2"
}
daemon=$(sed -n 's/^CMD \[\(.*\)\]$/\1/p' "$files/Containerfile" | tr -d '",')
for machine in n2 n3; do
    pod $machine "$daemon" >"$store/sshd-$machine.log" 2>&1 </dev/null &
done
sleep 2
words=$(python3 -c 'import sys, yaml
spec = yaml.safe_load(open(sys.argv[1]))["spec"]["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
import shlex
print(shlex.join(spec["command"] + spec["args"]))' "$files/mpijob.yaml") || fail "mpijob.yaml cannot be read"
pod n1 "OMPI_MCA_orte_default_hostfile=/etc/mpi/hostfile OMPI_MCA_orte_keep_fqdn_hostnames=true \
OMPI_MCA_plm_rsh_args='-o ConnectionAttempts=10' timeout 60 $words" </dev/null ||
    fail "the job ended with status $?; sshd says: $(cat "$store"/sshd-*.log)"
