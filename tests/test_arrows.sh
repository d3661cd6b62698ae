#!/bin/sh
# test_arrows - the only arrows allowed between the rooms, read from the #include lines.
#
#   sh tests/test_arrows.sh [TREE]
#
#   engine base ◄── engine model half ◄── engine compute      engine knows no other room
#   proto ──► proto, engine base                              worker ──► worker, proto, engine
#   coordinator ──► coordinator, proto, engine base and model half; main.c alone also knows worker
#   <mpi.h>, <cblas.h> and generated protobuf code are each included by one file.
#
# The build enforces the same with one library a room; this test also sees headers that need no library. It first
# plants one violation of every kind in a small tree, and fails if any goes unnoticed.
set -u

top=${1:-$(cd "$(dirname "$0")/.." && pwd)} || exit 1

# arrows TREE - one line for each forbidden include, nothing when all is well.
arrows() {
    (cd "$1" && find engine proto worker coordinator -name '*.[ch]' -exec \
        grep -nE '^[[:space:]]*#[[:space:]]*include' /dev/null {} +) | awk -F: '
    function is_base(f)  { return f ~ /^engine\/(err|log|state_dump|fault|process_look|fmath|fmath_core|isa|batch|digest|clock)\.[ch]$/ }
    function is_model(f) { return f ~ /^engine\/(gguf|gguf_kv|gguf_values|gguf_parts|safetensors|json_config|quant_[a-z_]*|families|hparams|model|footprint|plan|plan_work|memory|recipe|kernel_figures|weight_source)\.[ch]$/ }
    function room(f)     { return substr(f, 1, index(f, "/") - 1) }

    function allowed(from, to) {
        if (is_base(from)) return is_base(to)
        if (is_model(from)) return is_base(to) || is_model(to)
        if (room(from) == "engine") return room(to) == "engine"
        if (room(from) == "proto") return room(to) == "proto" || is_base(to)
        if (room(from) == "worker") return room(to) ~ /^(worker|proto|engine)$/
        if (from == "coordinator/main.c" && room(to) == "worker") return 1
        return room(to) ~ /^(coordinator|proto)$/ || is_base(to) || is_model(to)
    }

    function only_once(header, from) {
        if (header in first && first[header] != from)
            print from " includes " header ", and so does " first[header] "; one file may"
        else
            first[header] = from
    }

    {
        from = $1
        line = $0
        sub(/^[^:]*:[^:]*:/, "", line)
        if (!match(line, /["<][^">]+[">]/)) next
        to = substr(line, RSTART + 1, RLENGTH - 2)
        if (to == "mpi.h" || to == "cblas.h") only_once("<" to ">", from)
        else if (to ~ /\.pb-c\.h$/) only_once("generated protobuf code", from)
        else if (substr(line, RSTART, 1) == "\"" && !allowed(from, to)) print from " must not include " to
    }

    END { if (NR == 0) print "there is no #include line to read" }'
}

# plant FILE LINE... - a tree in which FILE has these lines; a good tree but for them.
plant() {
    rm -rf "$work/tree"
    for room in engine proto worker coordinator; do mkdir -p "$work/tree/$room/inside"; done
    echo '#include "engine/gguf.h"' >"$work/tree/coordinator/inside/inspect.c"
    echo '#include "worker/worker.h"' >"$work/tree/coordinator/main.c"
    printf '#include <mpi.h>\n#include <cblas.h>\n#include "tandem.pb-c.h"\n' >"$work/tree/proto/first.c"
    file=$1
    shift
    printf '%s\n' "$@" >>"$work/tree/$file"
}

expect() { # clean|caught WHAT
    if [ "$1" = clean ] && [ -z "$(arrows "$work/tree")" ]; then return; fi
    if [ "$1" = caught ] && [ -n "$(arrows "$work/tree")" ]; then return; fi
    echo "not ok the test itself: $2 should be $1"
    bad=1
}

self_test() {
    plant proto/first.c '' && expect clean "a good tree"
    while read -r file line; do
        plant "$file" "$line" && expect caught "$file with $line"
    done <<EOF
engine/err.c #include "engine/gguf.h"
engine/model.h #include "engine/stage.h"
engine/plan.c #include "engine/kernels/kernels.h"
engine/stage.c #include "proto/message.h"
engine/layer.c #include "worker/worker.h"
engine/layer.c #include "coordinator/main.h"
proto/codec.c #include "engine/gguf.h"
proto/codec.c #  include "worker/worker.h"
worker/exec.c #include "coordinator/line/line.h"
coordinator/inside/chat.c #include "engine/stage.h"
coordinator/inside/chat.c #include "engine/kernels/kernels.h"
coordinator/inside/chat.c #include "worker/worker.h"
coordinator/main.c #include "engine/stage.h"
worker/worker.c #include <mpi.h>
engine/blas.c #include <cblas.h>
worker/worker.c #include "tandem.pb-c.h"
worker/worker.c #include "exec.h"
EOF
}

work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
bad=0
self_test
[ "$bad" -eq 0 ] && echo "ok the test sees a planted violation of every arrow"

found=$(arrows "$top")
if [ -n "$found" ]; then
    printf '%s\n' "$found"
    echo "not ok the rooms include only what they may know"
    bad=1
else
    echo "ok the rooms include only what they may know"
fi
exit "$bad"
