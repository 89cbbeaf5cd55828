#!/bin/sh
# cuda.sh BUILD [WORKLOAD...] - compares a training step on an NVIDIA GPU with PyTorch, in one table; without a
# workload, all five. resnet50, vit-small, convnext-tiny, gpt2, gpt2-b4 and unet are networks of the recipes for own data,
# llama (grouped-query heads) and dit those of bench/nets.c (make benches);
# gpt-bytes (bytes as tokens) runs without PyTorch.
#
#   bench/cuda.sh build/release cloud
#   MODES=fp16-eager,fp16-default STEPS=20 bench/cuda.sh build/release cloud
#   PEER=no bench/cuda.sh build/release cloud          Plimsoll only
#   PEER=no OURS=warm bench/cuda.sh build/release lgt  one run only
#   OURS=none MODES=fp16-max-autotune TUNE_LIMIT=900 PEER_CACHE=/tmp/tuned bench/cuda.sh build/release cloud
#   LIMIT=600 MODE_LIMIT=300 bench/cuda.sh ...         seconds for everything, for one PyTorch mode
#   RESULTS=bench/results/h200.csv bench/cuda.sh ...   stores results; a repeated run replaces its line
#   TABLE=yes RESULTS=bench/results/h200.csv bench/cuda.sh   prints the stored results, and compares
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
