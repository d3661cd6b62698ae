#!/bin/sh
# test_kubernetes - the Kubernetes files, as far as one can see without a cluster: syntax, known fields, and that they agree.
#
#   sh test_kubernetes.sh TANDEM TOOLS
#
# The fields are those of kubeflow.org/v2beta1 and of a pod. Station before: ctest.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

files=$top/cluster/kubernetes
if ! python3 -c 'import yaml' 2>/dev/null; then
    skip "mpijob.yaml" "there is no python3 with yaml (python3-yaml)"
    finish
fi

cat >"$work/judge.py" <<'EOP'
import sys, yaml

FIELDS = {
    "job": "apiVersion kind metadata spec",
    "job.spec": "slotsPerWorker runLauncherAsWorker runPolicy mpiReplicaSpecs sshAuthMountPath launcherCreationPolicy "
                "mpiImplementation",
    "runPolicy": "cleanPodPolicy ttlSecondsAfterFinished activeDeadlineSeconds backoffLimit schedulingPolicy suspend managedBy",
    "replica": "replicas template restartPolicy",
    "pod": "containers volumes restartPolicy topologySpreadConstraints securityContext nodeSelector tolerations affinity",
    "container": "name image imagePullPolicy command args env securityContext resources volumeMounts readinessProbe ports",
    "volume": "name persistentVolumeClaim emptyDir hostPath configMap",
    "mount": "name mountPath readOnly subPath",
}

def known(kind, value):
    unknown = set(value) - set(FIELDS[kind].split())
    assert not unknown, f"{kind} has no {sorted(unknown)}"
    return value

job = known("job", yaml.safe_load(open(sys.argv[1])))
assert (job["apiVersion"], job["kind"]) == ("kubeflow.org/v2beta1", "MPIJob"), "no MPIJob of v2beta1"
spec = known("job.spec", job["spec"])
policy = known("runPolicy", spec["runPolicy"])
assert policy["cleanPodPolicy"] in ("None", "Running", "All"), "cleanPodPolicy"
assert spec["mpiImplementation"] in ("OpenMPI", "Intel", "MPICH"), "mpiImplementation"
assert set(spec["mpiReplicaSpecs"]) == {"Launcher", "Worker"}, "replicas"
name = job["metadata"]["name"]
for role, replica in spec["mpiReplicaSpecs"].items():
    assert known("replica", replica)["replicas"] >= 1, role
    pod = known("pod", replica["template"]["spec"])
    volumes = {known("volume", v)["name"] for v in pod.get("volumes", [])}
    for container in pod["containers"]:
        known("container", container)
        for word in container["command"] + container["args"]:
            assert isinstance(word, str), f"{role}: {word!r} is no text"
        for mount in container.get("volumeMounts", []):
            assert known("mount", mount)["name"] in volumes, f"{role}: no volume {mount['name']}"
    for constraint in pod.get("topologySpreadConstraints", []):
        labels = constraint["labelSelector"]["matchLabels"]
        assert labels["training.kubeflow.org/job-name"] == name, "the spread is of another job"
home = spec["sshAuthMountPath"].rsplit("/", 1)[0]
worker = spec["mpiReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
assert any(a.startswith(home + "/") for a in worker["args"]), "sshd's configuration is not in the home of the keys"
launcher = spec["mpiReplicaSpecs"]["Launcher"]["template"]["spec"]["containers"][0]
print(" ".join(launcher["args"]))
EOP
run python3 "$work/judge.py" "$files/mpijob.yaml"
check "mpijob.yaml has the fields of an MPIJob, and they agree" [ "$status" -eq 0 ]

# The launcher's words, with a host file as the operator writes it.
printf 'tandem-worker-0.tandem.default.svc slots=1\ntandem-worker-1.tandem.default.svc slots=1\n' >"$work/hostfile"
words=$(sed "s#/etc/mpi/hostfile#$work/hostfile#" "$work/out")
# shellcheck disable=SC2086 # words
run sh "$top/cluster/tandem-run" --dry-run --tandem "$TANDEM" $words
check "tandem-run takes the launcher's words" grep -q \
    '^mpirun --host tandem-worker-0.tandem.default.svc:2,tandem-worker-1.tandem.default.svc:1 -n 3 ' "$work/out"

# A field that is none is found.
sed 's/slotsPerWorker/slotsPerWorkers/' "$files/mpijob.yaml" >"$work/wrong.yaml"
run python3 "$work/judge.py" "$work/wrong.yaml"
check "a field that is none is found" [ "$status" -ne 0 ]

# What the image says and the job expects.
check "image and job agree on sshd's configuration" grep -q '"-De", "-f", "/home/mpiuser/sshd_config"' "$files/Containerfile"
check "image and job agree on the port" grep -q 'Port 2222' "$files/Containerfile"
finish
