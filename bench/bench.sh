#!/bin/sh
# bench.sh BUILD - compares Plimsoll with PyTorch on the CPU of this machine: ops, then a cloud step.
#
# The peer needs a Python with PyTorch: PYTHON=..., else python3. Without it only the times of Plimsoll are
# printed. Close other programs first: both engines use every core.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
python=${PYTHON:-python3}
if "$python" -c 'import torch' 2>/dev/null; then
    exec "$python" bench/compare.py --build "$build" --threads "$(nproc)"
fi
echo "no PyTorch for $python (set PYTHON=...): times of this engine alone, forward and both, ms"
while read -r line; do
    # shellcheck disable=SC2086
    printf '%-36s %s\n' "$line" "$("$build/pl_bench" $line)"
done <<END
conv 4 110 160 64 128 3 1
conv 8 32 32 128 128 3 1
matmul 4096 1024 1024
attention 2 1024 16 64
groupnorm 8 32 32 128 32
adamw 16777216
END
