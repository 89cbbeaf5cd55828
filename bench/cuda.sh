#!/bin/sh
# cuda.sh BUILD [WORKLOAD...] - a training step on an NVIDIA card beside PyTorch's, one table; without a
# workload all five.
#
#   bench/cuda.sh build/release cloud
#   MODES=fp16-eager,fp16-default STEPS=20 bench/cuda.sh build/release cloud
#   PEER=no bench/cuda.sh build/release cloud          ours alone
#   PEER=no OURS=warm bench/cuda.sh build/release lgt  one run alone
#   OURS=none MODES=fp16-max-autotune TUNE_LIMIT=900 PEER_CACHE=/tmp/tuned bench/cuda.sh build/release cloud
#   LIMIT=600 MODE_LIMIT=300 bench/cuda.sh ...         seconds for everything, for one PyTorch mode
#   RESULTS=bench/results/h200.csv bench/cuda.sh ...   keeps results; a run that is repeated replaces its line
#   TABLE=yes RESULTS=bench/results/h200.csv bench/cuda.sh   prints what is kept, and compares
#   DEVICE=cpu SCALE=tiny bench/cuda.sh ...            the same table of toys, without a card
#
# The peer (bench/peers) needs a Python with PyTorch: PYTHON=..., else python3. Nothing else should use
# the card meanwhile.
set -eu
cd "$(dirname "$0")/.."
build=${1:-build/release}
[ $# -gt 0 ] && shift
exec "${PYTHON:-python3}" bench/cuda.py --build "$build" --steps "${STEPS:-20}" --modes "${MODES:-}" \
    --peer "${PEER:-yes}" --ours "${OURS:-all}" --limit "${LIMIT:-3600}" --mode-limit "${MODE_LIMIT:-300}" \
    --tune-limit "${TUNE_LIMIT:-900}" ${PEER_CACHE:+--peer-cache "$PEER_CACHE"} \
    ${RESULTS:+--results "$RESULTS"} ${TABLE:+--table} \
    --device "${DEVICE:-cuda}" --scale "${SCALE:-full}" "$@"
