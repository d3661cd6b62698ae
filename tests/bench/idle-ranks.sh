#!/bin/sh
# idle-ranks - what do waiting ranks cost? A benchmark: it prints figures and judges them, and is no part of the tests.
#
#   sh tests/bench/idle-ranks.sh [TANDEM [PAIRS]]
#
#   1. The CPU time of ranks that wait for 10 s, while one worker of the line sleeps inside of a batch: < 5 % of a core.
#   2. Five ranks on two cores against three (two workers): tokens a second, alternating, the median of the pairs'
#      ratios: >= 0.8.
# Both depend on what else the machine does: the load is printed.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
# shellcheck source=../../cluster/mpi_env.sh
. "$top/cluster/mpi_env.sh"
tandem=${1:-$top/build/release/tandem}
pairs=${2:-5}
[ -x "$tandem" ] || { echo "idle-ranks: $tandem is no program; sh cluster/setup.sh builds it" >&2 && exit 1; }

work=$(mktemp -d) || exit 1
line=
clean_up() {
    [ -z "$line" ] || kill "$line" 2>/dev/null
    rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 1' INT TERM
printf 'load of the machine: %s; %s CPUs\n' "$(cut -d ' ' -f 1-3 /proc/loadavg)" "$(nproc)"

# ---- 1: waiting ranks ----

# ranks_of TAG - "RANK PID" of each rank of the line that has this in its environment.
ranks_of() {
    grep -lsz "^TANDEM_BENCH_TAG=$1\$" /proc/[0-9]*/environ 2>/dev/null | while read -r e; do
        pid=${e#/proc/}
        pid=${pid%/environ}
        rank=$(tr '\0' '\n' <"$e" 2>/dev/null | sed -n 's/^OMPI_COMM_WORLD_RANK=//p')
        [ -z "$rank" ] || printf '%s %s\n' "$rank" "$pid"
    done | sort -n
}

# ticks PID - of CPU time, user and system.
ticks() {
    sed 's/.*) //' "/proc/$1/stat" | awk '{ print $12 + $13 }'
}

wait_s=10
tag=$$-${work##*.}
TANDEM_BENCH_TAG=$tag TANDEM_TEST_FAULT=1:decode:$(((wait_s + 8) * 1000)) mpirun --oversubscribe -n 5 "$tandem" generate -q \
    -m "$top/cluster/models/demo-q8_0.gguf" --threads 1 --ids 1,2,3 -n 2 --ignore-eos >"$work/out" 2>&1 &
line=$!
sleep 4
ranks_of "$tag" >"$work/ranks"
[ "$(wc -l <"$work/ranks")" -eq 5 ] || { cat "$work/out" >&2 && echo "idle-ranks: the line does not stand" >&2 && exit 1; }
while read -r rank pid; do printf '%s %s %s\n' "$rank" "$pid" "$(ticks "$pid")"; done <"$work/ranks" >"$work/before"
sleep $wait_s
while read -r rank pid before; do
    printf '%s %s\n' "$rank" $(($(ticks "$pid") - before))
done <"$work/before" >"$work/used"
kill "$line" 2>/dev/null
wait "$line" 2>/dev/null
line=
awk -v hz="$(getconf CLK_TCK)" -v s=$wait_s '
    $1 != 1 {
        share = 100 * $2 / hz / s
        printf "rank %d waited for %d s and used %.1f %% of a core\n", $1, s, share
        if (share > worst) worst = share
    }
    END { printf "an idle rank uses %.1f %% of a core at most, want < 5: %s\n", worst, (worst < 5 ? "reached" : "NOT reached") }
' "$work/used"

# ---- 2: more ranks than cores ----

"$tandem" synth -q --family llama --layers 8 --embd 512 --heads 8 --heads-kv 4 --ff 1408 --type q8_0 --seed 1 \
    -o "$work/model.gguf" || exit 1
pin=
command -v taskset >/dev/null && [ "$(nproc)" -gt 2 ] && pin='taskset -c 0,1'

# speed RANKS - "pp TOKENS tg TOKENS" a second.
speed() {
    # shellcheck disable=SC2086 # $pin is words
    $pin mpirun --oversubscribe --bind-to none -n "$1" "$tandem" bench -q -m "$work/model.gguf" --threads 1 --pp 256 --tg 16 \
        --seqs 32 --repeat 3 --csv - >"$work/speed.csv" || exit 1
    awk -F , '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i }
        $1 == "run" { printf "%s %s ", $at["kind"], $at["tok_s_median"] }' "$work/speed.csv"
}

: >"$work/pairs"
i=0
while [ $i -lt "$pairs" ]; do
    few=$(speed 3) || exit 1
    many=$(speed 5) || exit 1
    printf '%s%s\n' "$few" "$many" >>"$work/pairs"
    i=$((i + 1))
done
for kind in pp tg; do
    awk -v kind=$kind '{ for (i = 1; i < NF; i += 2) if ($i == kind) { n[NR]++; v[NR, n[NR]] = $(i + 1) }
        print v[NR, 2] / v[NR, 1], v[NR, 1], v[NR, 2] }' "$work/pairs" | sort -n |
        awk -v kind=$kind '
            { ratio[NR] = $1; few += $2; many += $3 }
            END {
                median = NR % 2 ? ratio[(NR + 1) / 2] : (ratio[NR / 2] + ratio[NR / 2 + 1]) / 2
                printf "%s: two workers %.0f tokens/s, four %.0f; median ratio of %d pairs %.2f (%.2f .. %.2f), want >= 0.8: %s\n",
                    (kind == "pp" ? "prompt" : "text"), few / NR, many / NR, NR, median, ratio[1], ratio[NR],
                    (median >= 0.8 ? "reached" : "NOT reached")
            }'
done
