#!/bin/sh
# run - build the fuzz targets, run each for a while, and say which lines of the readers they reached.
#
#   sh tests/fuzz/run.sh [SECONDS] [FOLDER]      of each target (default 60); build and corpora (default build/fuzz)
#
# Seeds are the committed models and malformed files, those of TANDEM_TEST_DATA too where they are there; what a run
# finds stays in FOLDER/corpus and is where the next one begins. A crash, a hang or a leak ends the script with status
# 1; libFuzzer names the input, which belongs into a test. Stations inside: fuzz_gguf, fuzz_tokenizer.
set -u

top=$(cd "$(dirname "$0")/../.." && pwd) || exit 1
seconds=${1:-60}
folder=${2:-$top/build/fuzz}
shared=${TANDEM_TEST_DATA:-$top/../shared/data}

fail() {
    printf 'fuzz: %s\n' "$*" >&2
    exit 1
}

# have_clang - with the runtime that a fuzz target links.
have_clang() {
    echo 'int LLVMFuzzerTestOneInput(const unsigned char *d, unsigned long n) { return d && n && 0; }' |
        clang -x c - -fsanitize=fuzzer -o /dev/null 2>/dev/null && command -v llvm-cov >/dev/null
}

if ! have_clang; then
    sudo=
    [ "$(id -u)" -eq 0 ] || sudo=sudo
    $sudo apt-get -q update
    $sudo apt-get -q -y --no-install-recommends install clang libclang-rt-dev libomp-dev llvm
    have_clang || fail "clang cannot build a fuzz target"
fi

mkdir -p "$folder" || exit 1
build() {
    cmake -S "$top" -B "$folder" -DCMAKE_C_COMPILER=clang -DCMAKE_BUILD_TYPE=RelWithDebInfo \
        -DTANDEM_FUZZ=ON -DTANDEM_TESTS=OFF &&
        cmake --build "$folder" -j 2 --target fuzz_gguf fuzz_tokenizer fuzz_split
}
build >"$folder/build.log" 2>&1 || {
    tail -n 30 "$folder/build.log" >&2
    fail "the build failed; all of its output is in $folder/build.log"
}
bin=$folder/tests/fuzz

# Headers are small and tensor data is nothing to a reader, so a seed is the first 24 KiB of a file.
seed_bytes=24576
seeds=$folder/seeds
rm -rf "$seeds"
mkdir -p "$seeds" "$folder/corpus/fuzz_gguf" "$folder/corpus/fuzz_tokenizer" "$folder/tmp"
for f in "$top"/tests/data/malformed/gguf/*.gguf "$top"/tests/data/families/*.gguf \
    "$shared"/malformed/gguf/*.gguf "$shared"/families/*.gguf; do
    [ -r "$f" ] && head -c $seed_bytes "$f" >"$seeds/$(basename "$f")"
done

# Split models: the parts one behind the other, as fuzz_file.h takes them apart.
for f in "$seeds/ok_base.gguf" "$seeds/ok_tied.gguf"; do
    LLVM_PROFILE_FILE=$folder/split.profraw "$bin/fuzz_split" "$f" "$folder/tmp/s" 2 || fail "$f cannot be split"
    cat "$folder/tmp/s-00001-of-00002.gguf" "$folder/tmp/s-00002-of-00002.gguf" >"$seeds/split-$(basename "$f")"
done

# Texts for the tokenizer: a leading byte, then text.
for f in "$top/README.md" "$shared"/vocab/*.inp; do
    [ -r "$f" ] && { printf '%s' "$(basename "$f" | cut -c 1)"; head -c 2048 "$f"; } >"$seeds/text-$(basename "$f")"
done

export TMPDIR="$folder/tmp"
FUZZ_VOCABS=$top/cluster/models/demo-q8_0.gguf
for f in tests/data/malformed/gguf/ok_base.gguf tests/data/families/llama.gguf tests/data/families/gpt2.gguf; do
    FUZZ_VOCABS=$FUZZ_VOCABS:$top/$f
done
for f in gpt-2 llama-spm; do
    [ -r "$shared/vocab/ggml-vocab-$f.gguf" ] && FUZZ_VOCABS=$FUZZ_VOCABS:$shared/vocab/ggml-vocab-$f.gguf
done
export FUZZ_VOCABS

# fuzz TARGET SOURCE... - run it, and show the lines of these sources that it reached.
fuzz() {
    target=$1
    shift
    printf '==> %s for %s s\n' "$target" "$seconds"
    rm -f "$folder/$target".profraw
    LLVM_PROFILE_FILE=$folder/$target.profraw "$bin/$target" -max_total_time="$seconds" -max_len=32768 -timeout=60 \
        -malloc_limit_mb=64 -rss_limit_mb=1024 -print_final_stats=1 -artifact_prefix="$folder/$target-" \
        "$folder/corpus/$target" "$seeds" >"$folder/$target.log" 2>&1 || {
        tail -n 40 "$folder/$target.log" >&2
        printf 'fuzz: %s found something\n' "$target" >&2
        status=1
    }
    grep -E 'number_of_executed|slowest_unit|peak_rss' "$folder/$target.log"
    llvm-profdata merge -sparse "$folder/$target.profraw" -o "$folder/$target.profdata" || return
    for f in "$@"; do
        llvm-cov export -summary-only "$bin/$target" -instr-profile "$folder/$target.profdata" "$top/$f" |
            sed -n 's/.*"totals":.*"lines":{"count":\([0-9]*\),"covered":\([0-9]*\).*/\2 of \1 lines/p' |
            awk -v f="$f" '{ printf "%-36s %s, %.1f %%\n", f, $0, 100 * $1 / $3 }'
    done
}

status=0
fuzz fuzz_gguf engine/gguf.c engine/gguf_values.c engine/gguf_parts.c engine/hparams.c engine/model.c
fuzz fuzz_tokenizer coordinator/text/tokenizer.c coordinator/text/vocab.c coordinator/text/bpe.c coordinator/text/spm.c \
    coordinator/text/pretokenize.c coordinator/text/merge_pairs.c
exit $status
