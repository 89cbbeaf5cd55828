#!/bin/sh
# predict.sh BUILD [NAME ...] - compares predicted and measured steps of a list of networks (pl_predict.c).
#
# Measurements go into a separate folder, so the table of this machine does not change. Close other programs
# first; on a busy machine set PL_THREADS=1 and compare with the column `processor`.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
[ $# -gt 0 ] || set -- cloud/tiny cloud/demo lgt stablesr wandistill fluxflow
PLIMSOLL_CACHE=$(mktemp -d)
export PLIMSOLL_CACHE
trap 'rm -rf "$PLIMSOLL_CACHE"' EXIT
echo "from kernels of the same kind (plimsoll devices --calibrate):"
"$build/plimsoll" devices --calibrate >/dev/null
for name in "$@"; do "$build/pl_predict" --calibrated "$name"; done
echo "from the network's own kernels (plimsoll plan --measure):"
for name in "$@"; do "$build/pl_predict" "$name"; done
