#!/bin/sh
# loader.sh [BUILD] - decoding rate of the image loader, and how long a step waits for it.
#
# Makes a folder of 512 x 512 JPEGs (with the test program's own pictures), times the loader beside
# libturbojpeg alone with 2 threads, and trains a network that computes longer than it decodes.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
make -s "$build/pl_loader" "$build/plimsoll" "$build/pl_test"
PL_IMAGES_OUT="$dir/set" "$build/pl_test" -k data_images_are_made_for_the_loader_bench >/dev/null
"$build/pl_loader" "$dir/set" 512 2 "${SECONDS_EACH:-1}"
${CC:-cc} -shared -fPIC -O1 -I include -o "$dir/photo.so" tests/data/photo/photo.c
for workers in 0 1 2; do
    echo "training, 512 x 512, compute slower than decode, data.workers=$workers:"
    (cd "$dir" && "$OLDPWD/$build/plimsoll" train ./photo.so height=512 width=512 convs=3 batch=4 data.path=set classes=4 \
        data.workers=$workers train.steps=12 train.log_every=12 2>&1 | grep -o 'step_ms=[^ ]* wait=[^ ]*' | tail -1)
done
