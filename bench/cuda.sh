#!/bin/sh
# cuda.sh BUILD [WORKLOAD...] - a training step on an NVIDIA card beside PyTorch's, one table.
#
#   bench/cuda.sh build/release cloud
#   MODES=fp16-eager,fp16-default STEPS=20 bench/cuda.sh build/release cloud
#   PEER=no bench/cuda.sh build/release cloud        ours alone
#   LIMIT=600 MODE_LIMIT=300 bench/cuda.sh ...       seconds for everything, for one PyTorch mode
#   DEVICE=cpu SCALE=tiny bench/cuda.sh ...          the same table of toys, without a card
#
# The peer (bench/peers) needs a Python with PyTorch: PYTHON=..., else python3. Nothing else should use
# the card meanwhile.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
exec "${PYTHON:-python3}" bench/cuda.py --build "$build" --steps "${STEPS:-20}" --modes "${MODES:-}" \
    --peer "${PEER:-yes}" --limit "${LIMIT:-280}" --mode-limit "${MODE_LIMIT:-130}" \
    --device "${DEVICE:-cuda}" --scale "${SCALE:-full}" "${@:-cloud}"
