#!/bin/sh
# test_memory - what a rank needs is known before loading, is true, and is refused where it does not fit.
#
#   sh test_memory.sh TANDEM TOOLS
#
# Each predicted need is compared with what the worker held at most while it filled its context; and each slice, packed,
# with what bench and the kernel say that its worker held. Each refusal says what would fit, and that is then run.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
limit_s=120

# ids N STEP - N token ids, joined by commas; another step is another prompt.
ids() {
    awk -v n="$1" -v step="$2" 'BEGIN { while (n-- > 0) printf "%d%s", n * step % 251 + 2, (n ? "," : "\n") }'
}

# resident RANK - MiB at most, as the last run's -v report says.
resident() {
    sed -n "s/^rank $1: .*resident at most \([0-9.]*\) \([KMG]\)iB.*/\1 \2/p" "$work/err" |
        awk '{ print $1 * ($2 == "G" ? 1024 : $2 == "K" ? 1 / 1024 : 1) }'
}

# predicted STAGE FIELD - MiB, from $work/inspected.
predicted() {
    "$TOOLS/json_pick" "ranks.$1.$2" <"$work/inspected" | awk '{ print $1 / 1048576 }'
}

# declared STAGE - MiB, from $work/inspected: weights, key/value pool and buffers.
declared() {
    for f in weight_bytes kv_bytes buffer_bytes; do predicted "$1" $f; done | awk '{ sum += $1 } END { print sum }'
}

# ---- predicted against measured ----

# compare NAME STAGE - within 3 % + 16 MiB, and promise 2: at most 1.1 x what is declared, and 64 MiB.
compare() {
    need=$(predicted "$2" need_bytes)
    held=$(resident $(($2 + 1)))
    printf '%s, worker %d: %.1f MiB predicted, %.1f MiB resident at most\n' "$1" $(($2 + 1)) "$need" "${held:=0}"
    awk -v need="$need" -v held="$held" -v declared="$(declared "$2")" 'BEGIN {
        off = held > need ? held - need : need - held
        exit !(held > 0 && need > 0 && off <= 0.03 * need + 16 && held <= 1.1 * declared + 64) }'
}

# measure NAME WORKERS MODEL - two sequences that fill a context of 256.
measure() {
    tandem inspect "$3" --json --ranks $(($2 + 1)) --ctx 256 --slots 2
    cp "$work/out" "$work/inspected"
    tandem_on $(($2 + 1)) generate -v -m "$3" -n 8 --temp 0 --ignore-eos --ctx 256 --ids "$(ids 248 3)" \
        --ids "$(ids 248 7)"
    stage=0
    while [ "$status" -eq 0 ] && [ "$stage" -lt "$2" ]; do
        compare "$1" "$stage" || status=1
        stage=$((stage + 1))
    done
    check "$1" [ "$status" -eq 0 ]
}

# Weights of zero cost no disk, and as much memory as any.
for type in Q8_0 F16; do
    model "$type" type=$type layers=9 embd=768 ff=3072 heads=12 kv=12 vocab=32000 ctx=4096 zero=1
    for workers in 1 2 3; do
        measure "$type on $workers workers needs what was predicted" $workers "$made"
    done
done

# ---- promise 2, as bench and as the kernel see it ----

none_alive() {
    [ -z "$(ranks_alive)" ]
}

has_rank() {
    [ -n "$(pid_of "$1")" ]
}

# watch RANK - until it ends: what is resident of it, and has been at most, into $work/seen.RANK, in KiB.
watch() {
    wait_for 20 has_rank "$1" || return
    watched=$(pid_of "$1")
    while kill -0 "$watched" 2>/dev/null; do
        awk '$1 == "Rss:" { rss = $2 } $1 == "VmHWM:" { print rss, $2 }' "/proc/$watched/smaps_rollup" \
            "/proc/$watched/status" >>"$work/seen.$1" 2>/dev/null
        sleep 0.1
    done
}

# most_seen RANK - MiB, since its speed was measured, with made-up weights that are gone when its own come;
# then it counts its peak anew.
most_seen() {
    awk '{ if ($2 < 0.9 * peak) most = 0
           peak = $2
           if ($1 > most) most = $1 }
         END { print most / 1024 }' "$work/seen.$1"
}

# bench WORKERS MODEL - a short one, watched.
bench() {
    wait_for 20 none_alive
    rm -f "$work"/seen.*
    watchers=
    for rank in $(seq "$1"); do
        watch "$rank" &
        watchers="$watchers $!"
    done
    tandem_on $(($1 + 1)) bench -q -m "$2" --ctx 256 --slots 1 --pp 24 --tg 0 --seqs 1 --repeat 1 --json "$work/bench.json"
    # shellcheck disable=SC2086 # several numbers
    wait $watchers
}

# judge STAGE - at most the slice and 64 MiB, while it loads, too. What the kernel says is no more than what bench says,
# and was asked for when the weights were there.
judge() {
    held=$("$TOOLS/json_pick" "stages.$1.rss_bytes" <"$work/bench.json" | awk '{ print $1 / 1048576 }')
    seen=$(most_seen $(($1 + 1)))
    printf 'worker %d: %.1f MiB declared (weights %.1f), %.1f MiB resident at most, %.1f MiB seen\n' $(($1 + 1)) \
        "$(declared "$1")" "$(predicted "$1" weight_bytes)" "$held" "$seen"
    awk -v held="$held" -v seen="$seen" -v declared="$(declared "$1")" -v weights="$(predicted "$1" weight_bytes)" '
        BEGIN { exit !(held <= declared + 64 && seen <= 1.1 * declared + 64 && seen <= held + 2 && seen >= weights) }'
}

# hold NAME WORKERS MODEL
hold() {
    tandem inspect "$3" --json --ranks $(($2 + 1)) --ctx 256 --slots 1
    cp "$work/out" "$work/inspected"
    bench "$2" "$3"
    stage=0
    while [ "$status" -eq 0 ] && [ "$stage" -lt "$2" ]; do
        judge "$stage" || status=1
        stage=$((stage + 1))
    done
    check "$1" [ "$status" -eq 0 ]
}

# Slices of which a second copy would not fit into the bound; most of them are embedding and head, which cost no time.
for type in Q8_0 Q4_0 Q4_K; do
    for tied in 0 1; do
        head=$([ $tied -eq 1 ] && echo tied || echo untied)
        model "$type-$head" type=$type tied=$tied layers=8 embd=1024 ff=4096 heads=8 kv=8 vocab=131072 zero=1
        for workers in 2 3; do
            hold "each of $workers workers holds its slice of a model in $type, $head, and no more" $workers "$made"
        done
    done
done

# ---- refusals ----

# advice FLAG - what the refusal says behind it.
advice() {
    sed -n "s/.*what fits is .*$1 \([0-9]*\).*/\1/p" "$work/err"
}

# refused NAME LIMIT - the last run was, in one line among those of mpirun, before anything was loaded.
refused() {
    grep -e '^worker' -e '^coordinator' -e '^tandem' "$work/err" >"$work/lines"
    mv "$work/lines" "$work/err"
    expect_error "$1" 3 "worker [12] @.*needs [0-9]+ MiB \(tensors .*, KV .*, buffers .*may use [0-9]+ MiB \($2"
}

# limited KIB COMMAND... - with so much address space at most.
limited() {
    kib=$1
    shift
    # shellcheck disable=SC3045 # every sh of Linux has it
    (ulimit -v "$kib" && "$@" && exit "$status")
    status=$?
}

# A small model with a key/value cache as large as one likes.
model roomy layers=4 ctx=16777216
roomy=$made
space_kib=3000000

refuse_by_ulimit() {
    run sh -c "ulimit -v $space_kib && '$TANDEM' --version"
    if [ "$status" -ne 0 ]; then
        skip "a ulimit refuses" "tandem does not start under ulimit -v $space_kib"
        return
    fi
    limited $space_kib tandem_on 3 generate -m "$roomy" --ids 1,2,3 -n 4 --ctx 16777216
    refused "what is beyond ulimit -v is refused" "ulimit -v\)"
    n_ctx=$(advice --ctx)
    limited $space_kib tandem_on 3 generate -m "$roomy" --ids 1,2,3 -n 4 --ctx "${n_ctx:-1}"
    check "the advised context of ${n_ctx:-?} fits under ulimit -v" [ "$status" -eq 0 ]
    limited $space_kib tandem_on 3 generate -m "$roomy" --ids 1,2,3 -n 4 --ctx $((${n_ctx:-1} * 11 / 10))
    check "a tenth more does not" [ "$status" -eq 3 ]
    limited $space_kib tandem generate -m "$roomy" --stages 2 --ids 1,2,3 -n 4 --ctx 16777216
    refused "stages of one process share its ulimit" "ulimit -v\)"
}
refuse_by_ulimit

# make_group MIB - a control group of that size: its folder in $group; fails where none can be made.
make_group() {
    for group in /sys/fs/cgroup /sys/fs/cgroup/memory; do
        group=$group/tandem-test-$$
        mkdir "$group" 2>/dev/null || continue
        for file in memory.max memory.limit_in_bytes; do
            [ -w "$group/$file" ] && echo $(($1 << 20)) >"$group/$file" 2>/dev/null && return
        done
        rmdir "$group"
    done
    return 1
}

# in_group COMMAND... - run, inside the group.
in_group() {
    # shellcheck disable=SC2016 # the inner shell's
    run sh -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$group" "$@"
}

# generate_in_group CTX SLOTS PROMPT_TOKENS - four prompts on two workers.
generate_in_group() {
    in_group mpirun --oversubscribe -n 3 "$TANDEM" generate -m "$deep" -q -n 4 --temp 0 --ignore-eos --ctx "$1" \
        --slots "$2" --ids "$(ids "$3" 1)" --ids "$(ids "$3" 3)" --ids "$(ids "$3" 7)" --ids "$(ids "$3" 9)"
}

refuse_by_group() {
    if ! make_group 192; then
        skip "a control group refuses" "no control group can be made here"
        return
    fi
    trap 'clean_up; rmdir "$group" 2>/dev/null' EXIT
    generate_in_group 8192 4 40
    refused "workers that are beyond their group together are refused" "cgroup .*/tandem-test-$$\)"
    check "the refusal adds up what shares the group" grep -q "2 workers there need" "$work/err"
    n_ctx=$(advice --ctx)
    slots=$(advice --slots)
    generate_in_group "${n_ctx:-8}" 4 $((${n_ctx:-8} - 4))
    check "the advised context of ${n_ctx:-?} fits into the group, filled to its end" [ "$status" -eq 0 ]
    generate_in_group 8192 "${slots:-9}" 40
    check "the advised slots (${slots:-?}) fit" [ "$status" -eq 0 ]
    sleep 0.2
    rmdir "$group"
}
model deep type=Q8_0 layers=8 embd=256 ff=256 heads=8 kv=8 ctx=65536
deep=$made
refuse_by_group

finish
