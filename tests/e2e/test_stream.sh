#!/bin/sh
# test_stream - hosts without the model file: streamed and cached weights give the bits of the file, and what goes wrong
# is named.
#
#   sh test_stream.sh TANDEM TOOLS
#
# A rank "without the file" is started with a path at which there is none; where mount namespaces can be made, one is
# also given the right path and a file system that does not have it.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

ids=1,5,9,200,17,33,4,250,61,8
model llama type=Q8_0 layers=6
llama=$made
hidden=$work/nowhere/llama.gguf

# hidden_from FIRST RANKS ARGUMENT... - run tandem on so many ranks; from rank FIRST on they do not have $file.
file=$llama
hidden_from() {
    first=$1
    rest=$(($2 - $1))
    shift 2
    run mpirun --oversubscribe -n "$first" "$TANDEM" "$@" -m "$file" : -n "$rest" "$TANDEM" "$@" -m "$hidden"
}

# same NAME - the last run printed the wanted hashes.
same() {
    check "$1" cmp -s "$work/want" "$work/out"
}

# ours - of standard error only our own lines, for expect_error.
ours() {
    grep -E '^(tandem|coordinator|worker [0-9]+[^:]*): ' "$work/err" | grep -v 'TANDEM_TEST_FAULT' >"$work/ours"
    mv "$work/ours" "$work/err"
}

tandem logits -q -m "$llama" --ids "$ids" --hash
check "the file has scores of every position" [ "$status" -eq 0 -a "$(wc -l <"$work/out")" -eq 10 ]
mv "$work/out" "$work/want"

# ---- the same bits ----

for ranks in 3 4; do
    hidden_from 2 $ranks logits -q --ids "$ids" --hash
    same "$ranks ranks, all but the first worker without the file"
done
hidden_from 1 4 logits -q --ids "$ids" --hash
same "no worker has the file"
tandem_on 3 logits -q -m "$llama" --ids "$ids" --hash --weights stream
same "--weights stream"
for stages in 1 3; do
    tandem logits -q -m "$llama" --ids "$ids" --hash --weights stream --stages $stages
    same "--weights stream, $stages stages in one process"
done

tied_and_split() {
    if ! file=$(data families/gemma2.gguf); then
        skip "a tied model in parts" "families/gemma2.gguf is absent"
        file=$llama
        return
    fi
    cp "$work/want" "$work/want_llama"
    tandem logits -q -m "$file" --ids "$ids" --hash
    mv "$work/out" "$work/want"
    hidden_from 2 4 logits -q --ids "$ids" --hash
    same "a tied embedding goes to two workers"
    "$TOOLS/split_model" "$file" "$work/parts" 3 || exit 1
    file=$work/parts-00001-of-00003.gguf
    hidden=$work/nowhere/parts-00001-of-00003.gguf
    hidden_from 2 4 logits -q --ids "$ids" --hash
    same "a model in 3 parts is streamed"
    mkdir "$work/nowhere"
    cp "$file" "$hidden"
    hidden_from 2 4 logits -q --ids "$ids" --hash
    same "a worker that has one part of 3 gets all from the coordinator"
    rm -r "$work/nowhere"
    mv "$work/want_llama" "$work/want"
    file=$llama
    hidden=$work/nowhere/llama.gguf
}
tied_and_split

in_a_namespace() {
    mkdir "$work/disk"
    cp "$llama" "$work/disk/llama.gguf"
    if ! unshare -m sh -c "mount -t tmpfs none '$work/disk'" 2>/dev/null; then
        skip "a worker in a mount namespace of its own" "none can be made here"
        return
    fi
    set -- logits -q -m "$work/disk/llama.gguf" --ids "$ids" --hash
    # shellcheck disable=SC2016 # the inner shell's
    run mpirun --oversubscribe -n 2 "$TANDEM" "$@" : -n 1 unshare -m sh -c 'mount -t tmpfs none "$0" && exec "$@"' \
        "$work/disk" "$TANDEM" "$@"
    same "a worker in a mount namespace without the file"
}
in_a_namespace

# ---- the cache ----

cache=$work/cache

# cached NAME [ARGUMENT...] - three ranks, two of them without the file, with the cache.
cached() {
    name=$1
    shift
    hidden_from 1 3 logits -v --ids "$ids" --hash --cache "$cache" "$@"
    same "$name"
}

# says N PATTERN - so many lines of standard error do.
says() {
    [ "$(grep -cE -- "$2" "$work/err")" -eq "$1" ]
}

slices() {
    find "$cache" -name '*.slice' | sort
}

cached "the first start with a cache"
check "both slices are kept" says 2 'cached for the next start'
cached "the second start"
check "both slices come from the cache" says 2 'weights come from the cache'
check "nothing but slices is in the folder" [ "$(find "$cache" -type f | wc -l)" -eq 2 ]

# damaged WHERE OFFSET AGAIN - the first slice has another byte there; AGAIN: it is kept anew at once.
damaged() {
    slice=$(slices | sed -n 1p)
    old=$(od -An -tu1 -j "$2" -N 1 "$slice" | tr -d ' ')
    # shellcheck disable=SC2059 # an octal escape
    printf "\\$(printf %o $((255 - old)))" | dd of="$slice" bs=1 seek="$2" conv=notrunc 2>/dev/null
    cached "a cache file damaged in its $1 does no harm"
    check "a cache file damaged in its $1 is said in one line" says 1 "cache file $slice is damaged"
    [ "$3" = yes ] || cached "the start after that"
    check "the slice damaged in its $1 is kept anew" says 1 'cached for the next start'
    cached "all is well after the damage in its $1"
    check "and comes from the cache" says 2 'weights come from the cache'
}
damaged magic 3 yes
damaged digests 66 yes
damaged bytes 5000 no
damaged 'last byte' $(($(stat -c %s "$(slices | sed -n 1p)") - 1)) no

slice=$(slices | sed -n 2p)
truncate -s -1 "$slice"
cached "a cache file that was cut does no harm"
check "a cache file that was cut is said" says 1 "cache file $slice is damaged"

touch -d '2001-02-03' "$file"
cached "a file that was written again"
check "is not taken from the old cache" says 2 'cached for the next start'
check "beside the slices of the file before" [ "$(slices | wc -l)" -eq 4 ]
: >"$cache/0123456789abcdef-left.over.part"
touch -d '2002-02-03' "$file"
cached "a cache with a limit" --cache-size 1
check "the folder stays below it" [ "$(cat "$cache"/*.slice | wc -c)" -le 1048576 ]
check "left-overs of dead writers are removed" [ ! -e "$cache/0123456789abcdef-left.over.part" ]
cached "a cache in a folder that cannot be made" --cache /proc/nowhere
check "is said by each worker" says 2 'not cached: the folder /proc/nowhere'

# ---- memory ----

# resident RANK - MiB at most. declared RANK - MiB of tensors, cache and buffers.
resident() {
    sed -n "s/^rank $1: .*resident at most \([0-9.]*\) \([KMG]\)iB.*/\1 \2/p" "$work/err" |
        awk '{ print $1 * ($2 == "G" ? 1024 : $2 == "K" ? 1 / 1024 : 1) }'
}

within_promise() {
    for rank in 1 2; do
        need=$(sed -n "s/^coordinator: worker $rank @.*needs \([0-9.]*\) MiB .*/\1/p" "$work/err")
        held=$(resident "$rank")
        printf 'worker %d: %.1f MiB needed, %.1f MiB resident at most\n' "$rank" "${need:=0}" "${held:=0}"
        awk -v need="$need" -v held="$held" 'BEGIN { exit !(need > 0 && held > 0 && held <= need + 64) }' || return
    done
}
model large type=Q8_0 layers=8 embd=1024 ff=4096 heads=16 kv=16 vocab=32000 zero=1
tandem_on 3 generate -v -m "$made" --ids 1 -n 2 --temp 0 --weights stream --cache "$work/large"
check "streaming and caching, a worker holds its slice and 64 MiB" within_promise
tandem_on 3 generate -v -m "$made" --ids 1 -n 2 --temp 0 --weights stream --cache "$work/large"
check "the same from the cache" within_promise
rm -r "$work/large"

# ---- what goes wrong ----

hidden_from 2 3 generate -q --ids 1 -n 2 --weights local
ours
expect_error "--weights local names the rank that has no file" 2 'worker 2 @.*: .*nowhere/llama.gguf: cannot be opened'

# loading - a worker is about to load.
loading() {
    grep -q 'sleeps .*TANDEM_TEST_FAULT' "$work/err" 2>/dev/null
}

# slow_start COPY - in the background, on a copy of the model that may be spoiled; until worker 2 waits with loading.
slow_start() {
    cp "$large" "$1"
    : >"$work/err"
    TANDEM_TEST_FAULT=2:load:1500 timeout -k 5 "$limit_s" mpirun --oversubscribe -n 3 "$TANDEM" generate -v -m "$1" \
        --ids 1 -n 2 --weights stream >"$work/out" 2>"$work/err" </dev/null &
    mpirun_pid=$!
    wait_for 20 loading
}
large=$made

slow_start "$work/cut.gguf"
truncate -s 1000000 "$work/cut.gguf"
wait "$mpirun_pid"
check "a file that is cut while it is streamed is named, with the byte" \
    grep -qE '^coordinator: .*cut.gguf: the file ends at byte [0-9]+ and had [0-9]+ when it was opened' "$work/err"

slow_start "$work/killed.gguf"
kill -9 "$(pid_of 0)"
gone() {
    [ -z "$(ranks_alive)" ]
}
check "when the coordinator dies while it streams, nobody stays behind" wait_for 8 gone
wait "$mpirun_pid"

slow_start "$work/killed.gguf"
kill -9 "$(pid_of 2)"
wait "$mpirun_pid"
check "a worker that dies while its weights are streamed is named" \
    grep -qE '^worker 2 @.*: died while loading' "$work/err"
finish
