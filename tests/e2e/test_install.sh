#!/bin/sh
# test_install - what cmake --install puts where, and that it works from there.
#
#   sh test_install.sh TANDEM TOOLS
#
# Station before: ctest; the build folder is the program's.
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

prefix=$work/prefix
run cmake --install "$(dirname "$TANDEM")" --prefix "$prefix"
check "it installs" [ "$status" -eq 0 ]
for file in bin/tandem bin/tandem-run share/tandem/models/demo-q8_0.gguf share/tandem/hosts.example \
    share/tandem/lab/lab.sh share/tandem/slurm/generate-batch.sbatch share/doc/tandem/README.md share/doc/tandem/LICENSE; do
    check "$file is there" test -s "$prefix/$file"
done
cd / || exit 1
tandem generate -q -m "$demo_model" -p 'Once upon' -n 20 --temp 0
cp "$work/out" "$work/direct"
run "$prefix/bin/tandem-run" --per-host 2 generate -q -m "$prefix/share/tandem/models/demo-q8_0.gguf" -p 'Once upon' -n 20 --temp 0
check "the installed tandem-run starts the installed tandem" cmp "$work/direct" "$work/out"
check "it is that one" grep -q "$prefix/bin/tandem generate" "$work/err"
run sh "$prefix/share/tandem/tandem-run" --which
check "the scripts find it, too" [ "$(readlink -f "$(cat "$work/out")")" = "$(readlink -f "$prefix/bin/tandem")" ]
run "$prefix/bin/tandem" synth -q --preset tiny --type q8_0 -o "$work/tiny.gguf"
[ "$status" -ne 1 ] || run "$prefix/bin/tandem" synth -q --family llama --layers 1 --embd 64 --heads 2 --ff 64 --type q8_0 -o "$work/tiny.gguf"
check "synth finds the installed tokenizer" [ "$status" -eq 0 ]

if ! command -v help2man >/dev/null; then
    skip "the man page" "there is no help2man"
    finish
fi
page=$prefix/share/man/man1/tandem.1
check "the man page is there" test -s "$page"
"$TANDEM" --help | awk '/^Commands:/ { on = 1; next } !NF { on = 0 } on { print $1 }' >"$work/commands"
lacking=$(while read -r command; do
    grep -qix "\.SH \"*TANDEM ${command}\"*" "$page" || echo "$command"
done <"$work/commands")
check "it has a section for every command" test -s "$work/commands" -a -z "$lacking"
if command -v man >/dev/null; then
    run man --warnings -l "$page"
    check "man shows it without a warning" [ ! -s "$work/err" ]
else
    skip "man shows it without a warning" "there is no man"
fi
finish
