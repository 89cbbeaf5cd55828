#!/bin/bash
# overlap.sh - what overlapping exchanges with kernels gains on two CPU ranks of one machine.
#   bench/overlap.sh [BUILD] [ROUNDS]
# Median step of 2 ranks, one thread each, with and without overlap (PLIMSOLL_OVERLAP=0), alternating; and of one rank
# with half the batch, which exchanges nothing.
build=${1:-build/release} rounds=${2:-3}
cd "$(dirname "$0")/.." || exit 2
net="wandistill/tiny latent=8 student.hidden=256 student.depth=4 student.heads=4"
step() { # keys and options: median ms of the last 11 of 15 steps
    "$build/plimsoll" train $net data.workers=0 eval.every=0 threads=1 train.steps=15 --json "$@" 2>/dev/null |
        sed -n 's/.*"event":"step".*"step_ms":\([0-9.]*\).*/\1/p' | tail -11 | sort -g | sed -n 6p
}
for ((i = 0; i < rounds; i++)); do
    echo "$(step batch=4) $(PLIMSOLL_OVERLAP=0 step batch=8 --ranks 2) $(step batch=8 --ranks 2)"
done | awk '{printf "one rank, half the batch %.1f ms; two ranks, in place %.1f ms, beside %.1f ms: %.0f %% of the exchanges hidden\n",
             $1, $2, $3, 100 * ($2 - $3) / ($2 - $1)}'
