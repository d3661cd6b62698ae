#!/bin/sh
# test_lab - the network lab: four machines with limits, a model that is too big for one of them, a cut cable.
#
#   sh test_lab.sh TANDEM TOOLS
#
# Root on a Debian whose kernel has what lab.sh needs: there all of it must run. Elsewhere it is skipped by name.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=lab_lib.sh
. "$(dirname "$0")/lab_lib.sh"

limit_s=100
lab_or_skip "the network lab"

# lab_line OPTION... - a line over all machines.
lab_line() {
    lab run --tandem "$TANDEM" "$@"
}

# ---- machines ----

lab up 3 --rate 1gbit --memory 100M,200M
check "three machines come up" [ "$status" -eq 0 ]
lab up 2
expect_error "a second lab in the same place is refused" 1 'is there already'
lab on n2 sh -c 'hostname; ls /tmp; tc qdisc show dev eth0'
check "a machine has its name" grep -qx n2 "$work/out"
check "a machine's interface is paced" grep -q 'tbf .*rate 1Gbit' "$work/out"
: >"$work/private"
lab on n2 test -e "$work/private"
check "a machine's /tmp is its own" [ "$status" -eq 1 ]
lab on n3 test -r "$lab_sh"
check "the repository is shared" [ "$status" -eq 0 ]
lab on n1 sh -c 'exec 3<>/dev/zero; head -c 150000000 <&3 | tail -c 140000000 | wc -c'
check "a machine has no more memory than its limit" [ "$(cat "$work/out")" != 140000000 ]
lab on n2 sh -c 'exec 3<>/dev/zero; head -c 150000000 <&3 | tail -c 140000000 | wc -c'
check "another machine has more" [ "$(cat "$work/out")" = 140000000 ]
lab status
check "status says where the kernel had to kill" grep -Eq '^n1 +100 MiB .* [1-9][0-9]*$' "$work/out"
lab sent n1
check "a machine's interface has sent few bytes when it is new" [ "$(cat "$work/out")" -lt 10000 ]
lab on n9 true
expect_error "a machine that is not there" 1 'no machine n9'

cp "$demo_model" "$store/model.gguf"
: >"$store/beside"
lab hide "$store/model.gguf" n2 n3
check "a file is hidden" [ "$status" -eq 0 ]
hidden() {
    sh "$lab_sh" on n2 test -e "$store/beside" && ! sh "$lab_sh" on n2 test -e "$store/model.gguf" &&
        ! sh "$lab_sh" on n3 test -e "$store/model.gguf" && sh "$lab_sh" on n1 test -e "$store/model.gguf"
}
check "it is gone there and nowhere else, and its neighbours stay" hidden

tandem generate -q -m "$demo_model" -p 'Once upon' -n 20 --temp 0
cp "$work/out" "$work/direct"
lab_line generate -q -m "$demo_model" -p 'Once upon' -n 20 --temp 0
check "a line over three machines says the same" cmp "$work/direct" "$work/out"

# ---- a cut cable ----

export TANDEM_TEST_FAULT=decode:100
: >"$work/out"
timeout -k 5 40 sh "$lab_sh" run --tandem "$TANDEM" generate -q -m "$demo_model" -p 'Once upon' -n 200 --ignore-eos \
    --stall-timeout 3 >"$work/out" 2>"$work/err" </dev/null &
pid=$!
wait_for 30 test -s "$work/out"
sh "$lab_sh" cut n3
cut_ms=$(now_ms)
wait_for 10 grep -q 'stopped answering' "$work/err"
took_ms=$(($(now_ms) - cut_ms))
wait "$pid"
status=$?
unset TANDEM_TEST_FAULT
check "a machine that is cut off ends the line with status 5" [ "$status" -eq 5 ]
check "its rank, host and layers are named, and for how long it was silent" \
    grep -Eq '^worker 3 @n3, layers [0-9]+\.\.[0-9]+: stopped answering.* silent for 3\.[0-9] s' "$work/err"
check "within its --stall-timeout of 3 s, and one more" [ "$took_ms" -le 4000 ]
lab mend n3
lab_line generate -q -m "$demo_model" -p 'Once upon' -n 20 --temp 0
check "with its cable back, the line runs" cmp "$work/direct" "$work/out"

lab down
# sleeper - a process that holds a machine open.
sleeper() {
    grep -lszx "TANDEM_TEST_TAG=$TANDEM_TEST_TAG" /proc/[0-9]*/environ | while read -r e; do
        grep -qszx infinity "${e%environ}cmdline" && echo "$e"
    done | grep -q .
}
nothing_left() {
    [ ! -e "$TANDEM_LAB" ] && ! ls -d /sys/fs/cgroup/*/"${TANDEM_LAB##*/}"-n* /sys/fs/cgroup/"${TANDEM_LAB##*/}"-n* \
        >/dev/null 2>&1 && ! sleeper
}
check "down leaves nothing" wait_for 2 nothing_left
lab down
check "down may come twice" [ "$status" -eq 0 ]
lab up 0
expect_error "no machines are refused" 1 'up wants a number of machines'
lab up 2 --memory plenty
expect_error "a limit that is none is refused" 1 'plenty'
check "what was refused leaves nothing" wait_for 2 nothing_left
lab up 2 --rate fast
expect_error "a rate that is none is refused" 1 'rate wants .*fast'
lab up 2 --share "$store/nowhere"
expect_error "a folder that is none cannot be shared" 1 'share wants a folder'
run setpriv --reuid 65534 sh "$lab_sh" up 2
expect_error "somebody who is not root is refused" 1 'want root'
mkdir "$TANDEM_LAB"
: >"$TANDEM_LAB/precious"
lab down
expect_error "down removes no folder but a lab's" 1 'is no lab'
rm -r "$TANDEM_LAB"

# A kernel without tbf, as far as the second machine knows: the first is up by then.
mkdir "$work/bin"
printf '#!/bin/sh\ncase $* in *port2*) echo "Error: Specified qdisc kind is unknown." >&2; exit 2 ;; esac\nexec "%s" "$@"\n' \
    "$(command -v tc)" >"$work/bin/tc"
chmod +x "$work/bin/tc"
run env PATH="$work/bin:$PATH" sh "$lab_sh" up 2 --rate 1gbit
expect_error "a machine that cannot be made ends up with one line" 1 'port2 .* failed: .*qdisc kind is unknown'
check "half a lab is removed" wait_for 2 nothing_left
timeout -s TERM 0.5 sh "$lab_sh" up 64 >"$work/out" 2>"$work/err"
check "a lab that is interrupted is removed" wait_for 2 nothing_left

# ---- uneven limits ----

# layers_of RANK - how many layers the -v report gives it.
layers_of() {
    sed -n "s/^coordinator: worker $1 @.*, layers \([0-9]*\)\.\.\([0-9]*\): needs.*/\1 \2/p" "$work/err" |
        awk '{ print $2 - $1 + 1 }'
}

# inside LIMIT... - the report ends each worker's line with what it held at most.
inside() {
    sed -n 's/^rank \([1-9]\): .*resident at most \([0-9.]*\) MiB$/\1 \2/p' "$work/out" "$work/err" |
        awk 'BEGIN { want = ARGC - 1; for (i = 1; i < ARGC; i++) { limit[i] = ARGV[i]; ARGV[i] = "" } }
            $2 < limit[$1] { n++ }
            END { exit n != want }' "$@"
}

# More than a quarter of it does not fit into 200M, and all of it into 1800M. Zeroes cost no disk.
uneven() {
    lab up 4 --memory 200M,400M,400M,800M
    model uneven type=Q8_0 layers=44 embd=1280 ff=3584 heads=20 kv=4 vocab=2048 zero=1
    mv "$made" "$store/uneven.gguf"
    lab_line generate -v -m "$store/uneven.gguf" --ids 1,2,3 -n 4 --split auto
    for rank in 1 2 3 4; do printf 'machine %d holds %s layers\n' $rank "$(layers_of $rank)"; done
    check "uneven limits: the line runs" [ "$status" -eq 0 ]
    # A planner that measured it as slow may even leave it out.
    check "uneven limits give an uneven split: the smallest machine has less than a quarter" \
        awk 'BEGIN { exit !(ARGV[1] < 11 && ARGV[1] + ARGV[2] + ARGV[3] + ARGV[4] == 44) }' \
        "$(layers_of 1)" "$(layers_of 2)" "$(layers_of 3)" "$(layers_of 4)"
    check "uneven limits: each stays inside its own" inside 200 400 400 800
    lab status
    check "uneven limits: the kernel had to kill nobody" [ "$(awk 'NR > 1 && $NF == 0' "$work/out" | wc -l)" -eq 4 ]
    lab_line --hosts n1 generate -q -m "$store/uneven.gguf" --ids 1,2,3 -n 4
    check "uneven limits: one machine alone refuses with the plan's message" \
        [ "$status" -eq 3 -a "$(grep -c '^worker 1 @n1, layers 0..43: needs .* may use .*what fits is' "$work/err")" -eq 1 ]
    lab down
}
if "$TANDEM" generate --help | grep -q -- '--split.*auto'; then
    uneven
else
    skip "uneven limits give an uneven split" "this tandem splits by bytes only"
fi

# ---- the demonstrations ----

run sh "$top/cluster/lab/too-big.sh" --tandem "$TANDEM"
check "a model that is too big for one machine runs on four" [ "$status" -eq 0 ]
check "one machine refuses with the plan's message" \
    grep -q '^worker 1 @n1, layers 0..27: needs .* may use .*what fits is 2 workers' "$work/out"
check "each of the four stays inside its limit" inside 400 400 400 400

run sh "$top/cluster/lab/stream.sh" --layers 6 --tandem "$TANDEM"
cat "$work/out"
check "a hidden file is streamed, and its words come from the caches, too" [ "$status" -eq 0 ]
# Three quarters of it are wanted elsewhere.
sent_once() {
    awk '/ a file of / { file = $(NF - 1) }
        /^n1, over/ { n++; if ($(NF - 2) < 0.5 * file || $(NF - 2) > file) bad = 1 }
        /^each machine/ { n++; if ($(NF - 2) > 0.02 * file) bad = 1 }
        END { exit n != 2 || bad }' "$work/out"
}
check "each byte of it leaves its machine once, and at the second start none" sent_once

run sh "$top/cluster/lab/hops.sh" --tandem "$TANDEM"
cat "$work/out"
check "hops over real interfaces and emulated ones are in one table" \
    [ "$(awk 'NF == 5 && $1 ~ /^[0-9]+$/ && $2 > 0 && $3 > 0' "$work/out" | wc -l)" -ge 3 ]
# The wire's own time is a lower bound that noise cannot break: what was sent came no sooner.
paced() {
    awk 'NF == 5 && $1 > 500000 { n++; if ($2 < 0.8 * $5 || $3 < 0.8 * $5) bad = 1 } END { exit n == 0 || bad }' "$work/out"
}
check "neither is faster than the wire" paced
finish
