#!/bin/bash
# ranks_wandistill.sh - the tables of wandistill on two ranks in docs/RANKS.md, by plan.
#   bench/ranks_wandistill.sh [BUILD]
# Every rank has the preset's batch of 2. The minimum is the smallest budget for which a plan was found.
build=${1:-build/release}
cd "$(dirname "$0")/.." || exit 2
# The first of a name: the plan of the step, not what it is compared with.
first() { grep -o "\"$1\":[-0-9.e+]*" | head -1 | cut -d: -f2; }
row() { # name, then the arguments of plan
    local name=$1 json
    shift
    json=$("$build/plimsoll" plan "$@" accumulate=1 --json 2>/dev/null)
    awk -v n="$name" -v s="$(echo "$json" | first state_bytes)" -v a="$(echo "$json" | first arena_bytes)" \
        -v t="$(echo "$json" | first total_bytes)" -v m="$(echo "$json" | first minimum_bytes)" \
        -v l="$(echo "$json" | first link_bytes)" -v ms="$(echo "$json" | first predicted_step_ms)" \
        'BEGIN{g=2^30; printf "| %s | %.2f GiB | %.2f GiB | %.2f GiB | %.2f GiB | %.2f GB | %.0f ms |\n", n, s/g, a/g, t/g, m/g, l/1e9, ms}'
}
table() { # arguments of plan
    printf '| | state of a rank | arena | process | minimum | sent per rank | step time |\n| --- | --- | --- | --- | --- | --- | --- |\n'
    row "one rank" "$@" batch=2
    for shard in none optimizer gradients weights; do
        name="\`$shard\`"
        [ $shard = none ] && name=replicate
        row "$name" "$@" batch=4 --ranks 2 shard=$shard
    done
}
table wandistill/full --device h200
echo
table wandistill/card16 --device t4 link=pcie4
