#!/bin/bash
# ranks.sh - the table of docs/RANKS.md: one rank of 1, 8, 64 and 1,024 H100s, from the cost model.
#   bench/ranks.sh [BUILD]
# Weak scaling: every rank has the batch of the preset. efficiency = time with one rank / time with N. Waiting is the part of the
# exchanges that no kernel overlaps.
build=${1:-build/release}
cd "$(dirname "$0")/.." || exit 2
field() { sed -n "s/.*\"$1\":\([-0-9.e+\"a-z]*\).*/\1/p" | tr -d '"' | head -1; }
one() { # config batch ranks shard link
    "$build/plimsoll" plan "$1" batch=$(($2 * $3)) accumulate=1 accumulate_coupled=true --ranks "$3" --device h100 \
        --link "$5" shard="$4" --json 2>/dev/null
}
printf '| system | ranks | shard | memory of a rank | sent per rank and step | exchanges | of that waiting | step time | efficiency |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n'
for row in cloud/full:20 fluxflow/full:2 lgt/full:32 wandistill/full:2 stablesr/full:6; do
    config=${row%:*} batch=${row#*:} alone=
    for ranks in 1 8 64 1024; do
        for shard in none weights; do
            [ $ranks -eq 1 ] && [ $shard = weights ] && continue
            json=$(one "$config" "$batch" $ranks $shard nvlink/8+ib)
            ms=$(echo "$json" | field predicted_step_ms)
            [ -z "$ms" ] && { echo "| $config | $ranks | $shard | no plan | | | | | |"; continue; }
            [ $ranks -eq 1 ] && alone=$ms
            total=$(echo "$json" | field total_bytes) bytes=$(echo "$json" | field link_bytes)
            link=$(echo "$json" | field link_ms) wait=$(echo "$json" | field link_wait_ms)
            awk -v c="$config" -v n=$ranks -v s=$shard -v t="$total" -v b="${bytes:-0}" -v ms="$ms" -v a="$alone" \
                -v l="${link:-0}" -v w="${wait:-0}" \
                'BEGIN{printf "| %s | %d | %s | %.2f GiB | %.1f MB | %.1f ms | %.1f ms | %.1f ms | %.1f %% |\n", c, n, s, t/2^30, b/1e6, l, w, ms, 100*a/ms}'
        done
    done
done
