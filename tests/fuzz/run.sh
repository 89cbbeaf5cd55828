#!/bin/sh
# run.sh SECONDS [names...] - builds and runs the fuzzers, each for SECONDS.
#
# Every tests/fuzz/fuzz_NAME.c is one, with corpus/NAME as its seeds; 0 seconds runs the seeds only.
# What a run finds is kept under build/fuzz; a crash stops the script and its input is printed. The
# library is compiled with coverage and sanitizers into a build of its own.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:?usage: run.sh SECONDS [names...]}
shift
if [ $# -eq 0 ]; then
    for f in tests/fuzz/fuzz_*.c; do set -- "$@" "$(basename "$f" .c | cut -c6-)"; done
fi
export LSAN_OPTIONS="suppressions=$PWD/tests/fuzz/lsan.txt:print_suppressions=0"
san=fuzzer-no-link,address,undefined
make -s -j2 CC=clang SAN=$san BUILD=build/fuzz/lib build/fuzz/lib/libplimsoll.a
libs=$(sed -n 's/^LIBS *:= *//p' Makefile)
for name; do
    bin=build/fuzz/fuzz_$name
    mkdir -p "build/fuzz/found/$name" "tests/fuzz/corpus/$name"
    # shellcheck disable=SC2086
    clang -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all \
        -Iinclude -Isrc -I. -o "$bin" "tests/fuzz/fuzz_$name.c" build/fuzz/lib/libplimsoll.a $libs
    limit="-max_total_time=$seconds"
    [ "$seconds" -gt 0 ] || limit="-runs=0"
    echo "fuzz_$name: $seconds s"
    "$bin" "$limit" -timeout=60 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "build/fuzz/found/$name" "tests/fuzz/corpus/$name" \
        >"build/fuzz/$name.log" 2>&1 || {
        tail -40 "build/fuzz/$name.log"
        echo "fuzz_$name failed; the input is build/fuzz/$name-*"
        exit 1
    }
    grep -E 'number_of_executed_units|cov:' "build/fuzz/$name.log" | tail -2
done
