#!/bin/sh
# test_slurm - a real Slurm on two machines of the network lab: srun, mpirun, and the job files as they stand.
#
#   sh test_slurm.sh TANDEM TOOLS
#
# Slurm and munge are Debian's, with a configuration of their own, and end with the lab: all their processes are in its
# control groups. PMIx keeps its files in /tmp, which every machine has for itself.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lab_lib.sh
. "$(dirname "$0")/lab_lib.sh"

limit_s=100
lab_or_skip "Slurm"
unset SLURM_JOB_NODELIST PBS_NODEFILE TANDEM_TEST_FAULT

# ---- the cluster ----

slurm=$TANDEM_LAB/slurm
export SLURM_CONF="$slurm/slurm.conf"

# configure - schedules every second, and a job that was put back starts again in 5 s instead of 120.
configure() {
    mkdir -p "$slurm/state" "$slurm/spool.n1" "$slurm/spool.n2"
    head -c 1024 /dev/urandom >"$slurm/munge.key"
    chmod 400 "$slurm/munge.key"
    cat >"$SLURM_CONF" <<EOC
ClusterName=lab
SlurmctldHost=n1
SlurmUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$slurm/munge.socket,cred_expire=5
StateSaveLocation=$slurm/state
SlurmdSpoolDir=$slurm/spool.%n
SlurmctldPidFile=$slurm/slurmctld.pid
SlurmdPidFile=$slurm/slurmd.%n.pid
SlurmctldLogFile=$slurm/slurmctld.log
SlurmdLogFile=$slurm/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=1,bf_interval=1
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=5
MinJobAge=600
NodeName=n[1-2] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
EOC
}

nodes_idle() {
    [ "$(sh "$lab_sh" on n1 sinfo -h -N -t idle 2>/dev/null | wc -l)" -eq 2 ]
}

start_slurm() {
    sh "$lab_sh" up 2 --rate 1gbit >"$work/out" 2>"$work/err" || return 1
    configure
    sh "$lab_sh" on n1 munged --force --socket="$slurm/munge.socket" --key-file="$slurm/munge.key" \
        --pid-file="$slurm/munge.pid" --log-file="$slurm/munge.log" --seed-file="$slurm/munge.seed" \
        >>"$work/out" 2>>"$work/err" &&
        sh "$lab_sh" on n1 slurmctld >>"$work/out" 2>>"$work/err" &&
        sh "$lab_sh" on n1 slurmd -N n1 >>"$work/out" 2>>"$work/err" &&
        sh "$lab_sh" on n2 slurmd -N n2 >>"$work/out" 2>>"$work/err" && wait_for 30 nodes_idle
}

PATH=$PATH:/usr/sbin
for program in slurmctld slurmd sbatch munged; do
    command -v $program >/dev/null && continue
    not_ok "Slurm is installed" "no $program: apt-get install slurmctld slurmd slurm-client munge"
    finish
done
if ! start_slurm; then
    tail -n 5 "$slurm"/*.log
    not_ok "Slurm starts"
    finish
fi
ok "Slurm starts"

# on COMMAND... - where a user would be.
on() {
    lab on n1 "$@"
}

# The job files find tandem-run through this: the program under test is not where a build for use would be.
printf '#!/bin/sh\nexec "%s/cluster/tandem-run" --tandem "%s" "$@"\n' "$top" "$TANDEM" >"$store/tandem-run"
chmod +x "$store/tandem-run"
export TANDEM_RUN="$store/tandem-run"
cd "$top" || exit 1

# ---- lines in an allocation ----

# shellcheck disable=SC2054 # no array
words="generate -q -m $demo_model -p Once -n 20 --temp 0"
# shellcheck disable=SC2086 # words
tandem $words
cp "$work/out" "$work/direct"

# says NAME COMMAND... - the same words as one process.
says() {
    name=$1
    shift
    # shellcheck disable=SC2086 # words
    on "$@" $words
    check "$name" cmp "$work/direct" "$work/out"
}
says "srun --mpi=pmix starts a line" srun -N2 -n2 --mpi=pmix "$TANDEM"
says "tandem-run in an allocation" salloc -Q -N2 --exclusive "$TANDEM_RUN"
check "it used srun" grep -q '^tandem-run: srun --mpi=pmix .*--nodelist=n1,n1,n2 ' "$work/err"
says "tandem-run with two workers a node" salloc -Q -N2 --exclusive "$TANDEM_RUN" --per-host 2
says "tandem-run with the nodes in another order" salloc -Q -N2 --exclusive "$TANDEM_RUN" --hosts n2,n1
says "tandem-run with mpirun" salloc -Q -N2 --exclusive "$TANDEM_RUN" --launcher mpirun
check "it used mpirun" grep -q '^tandem-run: mpirun --host n1,n1,n2 ' "$work/err"
for launcher in srun mpirun; do
    on salloc -Q -N2 --exclusive "$TANDEM_RUN" --launcher $launcher generate -q -m "$work/nothing.gguf" -p x
    check "a file that is not there is status 2 under $launcher" [ "$status" -eq 2 ]
done

# ---- the job files ----

job_is() {
    on scontrol show job "$job"
    grep -q "JobState=$1" "$work/out"
}

# submit NAME FILE ARGUMENT... - with $sbatch's options; $job is its number.
submit() {
    file=$top/cluster/slurm/$2
    name=$1
    shift 2
    # shellcheck disable=SC2086 # words
    on sbatch --parsable --chdir "$store" -o "$store/job-%j.log" $sbatch "$file" "$@"
    job=$(cat "$work/out")
    check "$name is taken" test -n "$job"
}

# ends NAME - in good order, within minutes: others may use the machine.
ends() {
    if wait_for 240 job_is COMPLETED; then ok "$1"; else not_ok "$1" "$(tail -n 20 "$store/job-$job.log")"; fi
}

sbatch=
submit "bench.sbatch" bench.sbatch "$demo_model" --pp 16 --tg 4 --seqs 1,2 --repeat 1
ends "bench.sbatch ends"
"$TOOLS/json_pick" ranks <"$store/tandem-bench-$job.json" >"$work/out"
check "it wrote its numbers, of three ranks" [ "$(cat "$work/out")" = 3 ]

sbatch='--nodes 2'
submit "scaling.sbatch" scaling.sbatch --quick --no-plots --tandem "$TANDEM"
ends "scaling.sbatch ends"
check "it compared one node with two" [ "$(awk -F, '$1 == "strong" && $4 == "run" { print $2 }' "$store/scaling-$job/scaling.csv" |
    sort -u | tr '\n' ' ')" = "1 2 " ]

# ---- a batch that is cut, and goes on ----

if ! "$TANDEM" generate --help | grep -q -- '--batch'; then
    skip "a job that is cut by its time limit resumes" "this tandem has no generate --batch"
    finish
fi

awk 'BEGIN { for (i = 1; i <= 30; i++)
    printf "{\"id\": \"r%d\", \"prompt\": \"Once %d upon a time\", \"max_tokens\": 60, \"seed\": %d}\n", i, i, i }' \
    >"$store/in.jsonl"
tandem generate -q -m "$demo_model" --batch "$store/in.jsonl" -o "$store/uncut.jsonl"
sort "$store/uncut.jsonl" >"$work/uncut"

lines_are() {
    [ -f "$store/$1" ] && [ "$(wc -l <"$store/$1")" -ge "$2" ]
}

# resumed NAME OUT - the job ends, in its second run, with what one run would have written.
resumed() {
    ends "$1: the job ends"
    check "$1: it was put back into the queue" grep -q 'back into the queue' "$store/job-$job.log"
    check "$1: it ran more than once" [ "$(grep -c '^tandem-run: ' "$store/job-$job.log")" -ge 2 ]
    sort "$store/$2" >"$work/out"
    check "$1: the results are those of an uncut job" cmp "$work/uncut" "$work/out"
}

# Slurm looks at the clock every 30 s, so the signal comes 5 to 35 s after the start; the work takes a minute.
export TANDEM_TEST_FAULT=compute:30
sbatch='--time 1 --signal B:USR1@55'
submit "a job of a minute" generate-batch.sbatch "$demo_model" in.jsonl limit.jsonl --slots 2 --grace 1
resumed "cut by its time limit" limit.jsonl

export TANDEM_TEST_FAULT=compute:10
sbatch=--export=ALL,LAUNCHER=mpirun
submit "a job with mpirun" generate-batch.sbatch "$demo_model" in.jsonl mpirun.jsonl --slots 2 --grace 1
wait_for 30 lines_are mpirun.jsonl 4
on scancel --batch --signal=USR1 "$job"
resumed "cut by hand, under mpirun" mpirun.jsonl
finish
