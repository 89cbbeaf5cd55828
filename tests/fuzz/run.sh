#!/bin/sh
# run.sh - builds and runs the fuzzers.
#   run.sh SECONDS [names...]     one after the other, each for SECONDS; 0 seconds: the seeds only
#   run.sh --pack FILE [names...] builds them into FILE (.tar.xz) with seeds and libraries, for another machine: unpacked there,
#                                 ./go SECONDS [names...] runs all of them at once, as many as the machine has cores
# Every tests/fuzz/fuzz_NAME.c and tests/fuzz/kept/fuzz_NAME.c is one, with corpus/NAME as its seeds. What a run finds is kept under build/fuzz (in a pack: found/);
# a crash stops the script and its input is printed. The library is compiled with coverage and sanitizers into a build of its own.
case ${1-} in '' | -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"; exit 0 ;; esac
set -eu
cd "$(dirname "$0")/../.."
seconds=$1 pack=
shift
if [ "$seconds" = --pack ]; then
    pack=${1:?run.sh --pack FILE [names...]}
    shift
fi
if [ $# -eq 0 ]; then
    for f in tests/fuzz/fuzz_*.c tests/fuzz/kept/fuzz_*.c; do set -- "$@" "$(basename "$f" .c | cut -c6-)"; done
fi
export LSAN_OPTIONS="suppressions=$PWD/tests/fuzz/libraries/lsan.txt:print_suppressions=0"
san=fuzzer-no-link,address,undefined
make -s -j2 CC=clang SAN=$san BUILD=build/fuzz/lib build/fuzz/lib/libplimsoll.a
plugin=build/fuzz/lib/libplimsoll_sentencepiece.so
make -s BUILD=build/fuzz/lib $plugin 2>/dev/null || echo "no SentencePiece plug-in: fuzz_sentencepiece passes its inputs over"
[ ! -e $plugin ] || export PLIMSOLL_SENTENCEPIECE="$PWD/$plugin"
libs=$(sed -n 's/^LIBS *:= *//p' Makefile)

build() { # the program build/fuzz/fuzz_$1, with the files that a line "also:" names
    source=tests/fuzz/fuzz_$1.c
    [ -e "$source" ] || source=tests/fuzz/kept/fuzz_$1.c
    also=$(sed -n 's|^/\* also: \(.*\) \*/$|\1|p' "$source")
    # shellcheck disable=SC2086
    clang -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=fuzzer,address,undefined -fno-sanitize-recover=all -Iinclude -Isrc -I. \
        -o "build/fuzz/fuzz_$1" "$source" $also build/fuzz/lib/libplimsoll.a -Wl,--as-needed $libs
    mkdir -p "build/fuzz/found/$1" "tests/fuzz/corpus/$1"
}

# The program build/fuzz/fuzz_all, which is fuzz_NAME when it is called so: an archive with one copy of the library is small.
one() {
    objects=build/fuzz/one
    rm -rf $objects && mkdir -p $objects
    for name; do
        source=tests/fuzz/fuzz_$name.c
        [ -e "$source" ] || source=tests/fuzz/kept/fuzz_$name.c
        for file in "$source" $(sed -n 's|^/\* also: \(.*\) \*/$|\1|p' "$source"); do
            clang -c -std=c11 -D_GNU_SOURCE -O1 -g -fsanitize=$san -fno-sanitize-recover=all -Iinclude -Isrc -I. \
                -DLLVMFuzzerTestOneInput="one_$name" -o "$objects/$(echo "$file" | tr / _).o" "$file"
        done
    done
    {
        echo '#include <stddef.h>'
        echo '#include <stdint.h>'
        echo '#include <string.h>'
        for name; do echo "int one_$name(const uint8_t *data, size_t n);"; done
        echo 'static int (*one)(const uint8_t *, size_t);'
        echo 'int LLVMFuzzerInitialize(int *argc, char ***argv) {'
        echo '    const char *slash = strrchr((*argv)[0], 47), *name = slash ? slash + 1 : (*argv)[0];'
        for name; do echo "    if (!strcmp(name, \"fuzz_$name\")) one = one_$name;"; done
        echo '    return argc && one ? 0 : 1;'
        echo '}'
        echo 'int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) { return one(data, n); }'
    } >$objects/main.c
    # shellcheck disable=SC2086
    clang -std=c11 -O1 -g -fsanitize=fuzzer,address,undefined -o build/fuzz/fuzz_all $objects/main.c $objects/*.o \
        -Wl,-z,muldefs build/fuzz/lib/libplimsoll.a -Wl,--as-needed $libs
}

sources() { for name; do find tests/fuzz -name "fuzz_$name.c"; done; }
# oneDNN is three quarters of all libraries: functions that abort take its place, unless a fuzzer says that it computes.
without_onednn() {
    nm -D --undefined-only "$1" | sed -n 's/.* U \(dnnl_[a-z0-9_]*\).*/void \1(void) { __builtin_trap(); }/p' >build/fuzz/onednn.c
    clang -w -shared -fPIC -Wl,-soname,libdnnl.so.2 -o "$2/libdnnl.so.2" build/fuzz/onednn.c
}

# Libraries that the program opens by name, and all that programs need but what every machine with glibc has.
libraries() {
    grep -rhoE '"lib[a-z0-9_-]+\.so\.[0-9]+"' src/onnx src/data src/io | tr -d '"' | sort -u |
        while read -r name; do ldconfig -p | awk -v n="$name" '$1 == n {print $NF; exit}'; done >build/fuzz/opened
    # shellcheck disable=SC2046
    { cat build/fuzz/opened; ldd "$@" $plugin $(cat build/fuzz/opened) 2>/dev/null | awk '$2 == "=>" {print $3}'; } | sort -u |
        grep -vE '/(ld-linux.*|lib(c|m|dl|rt|pthread|resolv|gcc_s|stdc\+\+))\.so'
}

if [ -n "$pack" ]; then
    to=build/fuzz/pack
    rm -rf $to && mkdir -p $to/bin $to/lib $to/tests/fuzz $to/tests/data
    one "$@"
    cp build/fuzz/fuzz_all $to/bin/all
    for name; do ln -s all "$to/bin/fuzz_$name"; done
    # shellcheck disable=SC2046
    cp -L $(libraries $to/bin/all) $plugin $to/lib
    # shellcheck disable=SC2046
    grep -qx '/\* computes \*/' $(sources "$@") || without_onednn $to/bin/all $to/lib
    cp -r tests/fuzz/corpus tests/fuzz/libraries $to/tests/fuzz
    cp -r tests/data/encoders tests/data/tokens $to/tests/data
    cp tests/fuzz/go $to
    strip --strip-debug $to/bin/all $to/lib/*
    tar -C $to --sort=name -c . | xz -T1 --lzma2=preset=3,dict=96MiB >"$pack"
    ls -sh "$pack"
    exit 0
fi

for name; do
    build "$name"
    # libFuzzer stops at a crash inside a library, too: ./go of a pack sorts them out
    if [ -e "tests/fuzz/libraries/$name.library" ] && [ "$seconds" -gt 0 ]; then
        echo "fuzz_$name: pack it (--pack) and run ./go: $(cat "tests/fuzz/libraries/$name.library") itself crashes"
        continue
    fi
    limit="-max_total_time=$seconds"
    [ "$seconds" -gt 0 ] || limit="-runs=0"
    echo "fuzz_$name: $seconds s"
    "build/fuzz/fuzz_$name" "$limit" -timeout=60 -rss_limit_mb=2048 -max_len=65536 -print_final_stats=1 \
        -artifact_prefix="build/fuzz/$name-" "build/fuzz/found/$name" "tests/fuzz/corpus/$name" \
        >"build/fuzz/$name.log" 2>&1 || {
        tail -n 40 "build/fuzz/$name.log"
        echo "fuzz_$name failed; the input is build/fuzz/$name-*"
        exit 1
    }
    grep -E 'number_of_executed_units|cov:' "build/fuzz/$name.log" | tail -n 2
done
