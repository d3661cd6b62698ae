#!/bin/sh
# test_tandem_run - the launcher's lines, for hosts and allocations that are not here, and its statuses, for a line that is.
#
#   sh test_tandem_run.sh TANDEM TOOLS
#
# Allocations are what their environment says; machines with NUMA domains are folders with their /sys and /proc.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

launcher=$top/cluster/tandem-run
unset SLURM_JOB_NODELIST PBS_NODEFILE OMP_NUM_THREADS OMP_PROC_BIND OMP_PLACES TANDEM_ISA

# machine NAME ALLOWED CPULIST... - a root folder with one NUMA domain for each list.
machine() {
    folder=$work/$1
    mkdir -p "$folder/proc/self"
    printf 'Name:\tsh\nCpus_allowed_list:\t%s\n' "$2" >"$folder/proc/self/status"
    shift 2
    node=0
    for cpus; do
        mkdir -p "$folder/sys/devices/system/node/node$node"
        echo "$cpus" >"$folder/sys/devices/system/node/node$node/cpulist"
        node=$((node + 1))
    done
}
machine plain 0-7 0-7
machine two 0-15 0-3,8-11 4-7,12-15
machine half 0-3 0-3,8-11 4-7,12-15
machine memory_only 0-7 0-7 ''

# A Slurm that is only asked questions.
mkdir "$work/bin"
cat >"$work/bin/scontrol" <<'EOS'
#!/bin/sh
[ "$1 $2 $3" = "show hostnames n[1-3]" ] && printf 'n1\nn2\nn3\n'
EOS
printf '#!/bin/sh\necho "MPI plugin types are... none pmix pmix_v4" >&2\n' >"$work/bin/srun"
mkdir "$work/without_pmix"
cp "$work/bin/scontrol" "$work/without_pmix"
printf '#!/bin/sh\necho "MPI plugin types are... none pmi2" >&2\n' >"$work/without_pmix/srun"
chmod +x "$work"/bin/* "$work"/without_pmix/*
printf 'n7\nn7\nn8\nn8\n' >"$work/nodes"
printf '# the rack\nn1 slots=2\n\nn2   # the slow one\n10.0.0.3 slots=1 max_slots=4\n' >"$work/hosts"

# line NAME WANTED MACHINE ENVIRONMENT OPTION... - the line that it prints for "bench -m M", between the program's words.
line() {
    name=$1
    wanted="$2 $TANDEM bench -m M"
    env_words=$4
    root=$work/$3
    shift 4
    # shellcheck disable=SC2086 # words
    run env TANDEM_TEST_ROOT="$root" $env_words sh "$launcher" --dry-run --tandem "$TANDEM" "$@" bench -m M
    printf '%s\n' "$wanted" >"$work/wanted"
    if [ "$status" -eq 0 ] && cmp -s "$work/wanted" "$work/out"; then ok "$name"; else not_ok "$name" "want $wanted"; fi
}

slurm="PATH=$work/bin:$PATH SLURM_JOB_NODELIST=n[1-3]"
srun='srun --mpi=pmix'
rest='--overcommit --input=0 --kill-on-bad-exit=1'
anywhere='--map-by slot --bind-to none'
told='--map-by seq:OVERSUBSCRIBE --bind-to'
domain='--map-by numa --rank-by slot --bind-to numa'
line "this machine alone" "mpirun --host localhost:2 -n 2 $anywhere" plain ''
line "this machine with two NUMA domains" "mpirun --host localhost:3 -n 3 $domain" two ''
line "a domain that is not ours does not count" "mpirun --host localhost:2 -n 2 $anywhere" half ''
line "a domain without CPUs does not count" "mpirun --host localhost:2 -n 2 $anywhere" memory_only ''
line "three workers here" "mpirun --host localhost:4 -n 4 $anywhere" plain '' --per-host 3
line "hosts by name" "mpirun --host a:2,b:2,c:1 -n 5 $anywhere" plain '' --hosts a,b:2,c
line "hosts with two domains each" "mpirun --host a:3,b:2 -n 5 $domain" two '' --hosts a,b
line "fewer workers than domains have all cores" "mpirun --host a:2,b:2 -n 4 $anywhere" two '' --hosts a:1,b
line "a host that is named twice" "mpirun --host a:3,b:1 -n 4 $anywhere" plain '' --hosts a,b,a
line "hosts from a file" "mpirun --host n1:3,n2:1,10.0.0.3:1 -n 5 $anywhere" plain '' --hostfile "$work/hosts"
line "the example of a host file" "mpirun --host node01:3,node02:2,node03:1,10.0.0.14:1 -n 7 $anywhere" plain '' \
    --hostfile "$top/cluster/hosts.example"
line "some of the places" "mpirun --host a:3,b:1 -n 4 $anywhere" plain '' --hosts a:2,b:2,c:2 --workers 3
line "so many workers on the only host" "mpirun --host localhost:6 -n 6 $anywhere" plain '' --workers 5
line "an interface and a port range" "mpirun --host a:2,b:1 -n 3 $anywhere --mca btl_tcp_if_include eth1 \
--mca oob_tcp_if_include eth1 --mca btl_tcp_port_min_v4 47000 --mca btl_tcp_port_range_v4 100 \
--mca oob_tcp_dynamic_ipv4_ports 47000-47099" plain '' --hosts a,b --iface eth1 --ports 47000-47099
line "what the other hosts must know travels" "mpirun --host a:2,b:1 -n 3 $anywhere -x OMP_NUM_THREADS -x TANDEM_ISA" \
    plain 'OMP_NUM_THREADS=4 TANDEM_ISA=avx2' --hosts a,b
line "a PBS allocation" "mpirun --host n7,n7,n8 -n 3 $told none" plain "PBS_NODEFILE=$work/nodes"
line "a Slurm allocation" "$srun --ntasks=4 --distribution=arbitrary --nodelist=n1,n1,n2,n3 $rest --cpu-bind=none" \
    plain "$slurm"
line "a Slurm allocation with two domains each" "$srun --ntasks=7 --distribution=arbitrary \
--nodelist=n1,n1,n1,n2,n2,n3,n3 $rest --cpu-bind=rank_ldom" two "$slurm"
line "part of a Slurm allocation, on one interface" "env OMPI_MCA_btl_tcp_if_include=ib0 $srun --ntasks=3 \
--distribution=arbitrary --nodelist=n2,n2,n3 $rest --cpu-bind=none" plain "$slurm" --hosts n2,n3 --iface ib0
line "mpirun in a Slurm allocation" "mpirun --host n1,n1,n2,n3 -n 4 $told none" plain "$slurm" \
    --launcher mpirun
line "mpirun in a Slurm allocation with two domains each" "mpirun --host n1,n1,n1,n2,n2,n3,n3 -n 7 $told numa" two \
    "$slurm" --launcher mpirun
line "a Slurm whose srun knows no PMIx" "mpirun --host n1,n1,n2,n3 -n 4 $told none" plain \
    "PATH=$work/without_pmix:$PATH SLURM_JOB_NODELIST=n[1-3]"

# The printed line can be pasted.
run sh "$launcher" --dry-run --tandem "$TANDEM" tokenize -m "$demo_model" -p "it's \$HOME"
mv "$work/out" "$work/pasted"
tandem tokenize -m "$demo_model" -p "it's \$HOME"
cp "$work/out" "$work/direct"
sed "s/^mpirun .* --bind-to none //" "$work/pasted" >"$work/command"
run sh "$work/command"
check "the printed words are quoted as a shell wants them" cmp "$work/direct" "$work/out"

# refused NAME PATTERN OPTION...
refused() {
    name=$1
    pattern=$2
    shift 2
    run sh "$launcher" --dry-run --tandem "$TANDEM" "$@"
    expect_error "$name" 1 "$pattern"
}
refused "no verb" 'no verb' --hosts a
refused "an unknown option" '^tandem-run: unknown option --nodes' --nodes 3 bench
refused "an option without its value" '--iface is unknown or wants a value' --iface
refused "a host name that is none" 'no host name.*a;b' --hosts 'a;b' bench
refused "a number of workers that is none" 'a:x' --hosts a:x bench
refused "no workers for a host" "--per-host wants" --per-host 0 bench
refused "more workers than places" '--workers 3 is more than' --hosts a,b --workers 3 bench
refused "no workers at all" '--workers wants' --hosts a,b --workers 0 bench
refused "hosts twice" 'contradict' --hosts a --hostfile "$work/hosts" bench
refused "a host file that is not there" 'nowhere cannot be read' --hostfile "$work/nowhere" bench
refused "a host file without hosts" 'names none' --hostfile /dev/null bench
refused "one port is no range" '--ports wants a range' --ports 47000 bench
refused "a range that runs backwards" '--ports wants a range' --ports 47000-46000 bench
refused "an interface with a blank" '--iface wants' --iface 'a b' bench
refused "srun outside of Slurm" 'is none' --launcher srun bench
refused "a program that is not there" 'nothing is no program' --tandem "$work/nothing" bench

# ---- real lines ----

# started ARGUMENT... - three workers on this machine.
started() {
    run sh "$launcher" --tandem "$TANDEM" --per-host 3 "$@"
}
tandem generate -q -m "$demo_model" -p 'Once upon' -n 20 --temp 0
cp "$work/out" "$work/direct"
started generate -m "$demo_model" -p 'Once upon' -n 20 --temp 0
check "a line on this machine generates" [ "$status" -eq 0 ]
check "it generates the same" cmp "$work/direct" "$work/out"
check "it says what it runs" grep -q '^tandem-run: mpirun --host localhost:4 -n 4 .* generate -m' "$work/err"
printf 'Once upon' | timeout "$limit_s" sh "$launcher" --tandem "$TANDEM" generate -q -m "$demo_model" -n 20 --temp 0 \
    >"$work/out" 2>"$work/err"
check "standard input is the coordinator's" cmp "$work/direct" "$work/out"

# gives_back NAME STATUS ARGUMENT...
gives_back() {
    name=$1
    wanted=$2
    shift 2
    started generate -q -m "$demo_model" "$@"
    check "$name gives back $wanted" [ "$status" -eq "$wanted" ]
}
gives_back "a wrong split" 1 -p x --split 1,1
gives_back "a file that is not there" 2 -p x -m "$work/nothing.gguf"
gives_back "a prompt beyond the context" 3 --ids 1,2,3,4,5,6,7,8,9 --ctx 4
export TANDEM_TEST_FAULT=2:decode:exit
gives_back "a worker that dies" 4 -p x
export TANDEM_TEST_FAULT=decode:50

# interrupted SIGNAL - while it writes. The shell makes its background deaf to SIGINT; env undoes that.
interrupted() {
    : >"$work/out"
    env --default-signal=INT timeout -k 5 "$limit_s" sh "$launcher" --tandem "$TANDEM" --per-host 3 generate -q -m "$demo_model" -p x -n 200 \
        --ignore-eos >"$work/out" 2>"$work/err" </dev/null &
    pid=$!
    wait_for 20 test -s "$work/out"
    pkill "-$1" -P "$pid"
    wait "$pid"
    status=$?
    check "SIG$1 gives back 130" [ "$status" -eq 130 ]
}
interrupted INT
interrupted TERM

for i in 1 2 3 4 5 6; do echo "{\"prompt\": \"x\", \"max_tokens\": $((i * 10))}"; done >"$work/in.jsonl"
timeout -k 5 "$limit_s" sh "$launcher" --tandem "$TANDEM" --per-host 3 generate -q -m "$demo_model" --batch "$work/in.jsonl" \
    -o "$work/out.jsonl" --slots 1 >"$work/out" 2>"$work/err" </dev/null &
pid=$!
wait_for 30 test -s "$work/out.jsonl"
pkill -USR1 -P "$pid"
wait "$pid"
check "a batch that is told to finish gives back 75" [ $? -eq 75 ]
unset TANDEM_TEST_FAULT
check "no note is left behind" [ -z "$(find "${TMPDIR:-/tmp}" -maxdepth 1 -name '.tandem-run.*' -newer "$work/direct")" ]
finish
