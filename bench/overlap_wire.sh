#!/bin/bash
# overlap_wire.sh - what overlapping exchanges with kernels gains over a slow link between two ranks.
#   bench/overlap_wire.sh [BUILD] [RATE] [ROUNDS]      as root; needs ip, tc (iproute2) and mpirun
# Two network namespaces joined by a veth pair of that rate (2gbit), a rank with one thread in each. Prints the median step
# without overlap (PLIMSOLL_OVERLAP=0) and with it, alternating.
build=${1:-build/release} rate=${2:-2gbit} rounds=${3:-3}
cd "$(dirname "$0")/.." || exit 2
program=$PWD/$build/plimsoll
[ "${build#/}" != "$build" ] && program=$build/plimsoll
a=plwa$$ b=plwb$$ dir=$(mktemp -d)
ip netns add $a || exit 2
clean() { ip netns del $a; ip netns del $b; rm -rf "$dir"; } 2>/dev/null
trap clean EXIT
ip netns add $b || exit 2
ip link add v$a type veth peer name v$b || exit 2
ip link set v$a netns $a && ip link set v$b netns $b
for side in "$a 10.78.0.1" "$b 10.78.0.2"; do
    set -- $side
    ip netns exec "$1" ip addr add "$2/24" dev "v$1"
    ip netns exec "$1" ip link set "v$1" up
    ip netns exec "$1" ip link set lo up
    ip netns exec "$1" tc qdisc add dev "v$1" root tbf rate "$rate" burst 512kb latency 100ms || exit 2
done
printf '#!/bin/sh\nshift\nexec ip netns exec %s sh -c "$*"\n' $b >"$dir/agent"
chmod +x "$dir/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_hwloc_base_binding_policy=none OMPI_MCA_plm_rsh_agent="$dir/agent" OMPI_MCA_btl=tcp,self
export OMPI_MCA_oob_tcp_if_include=10.78.0.0/24 OMPI_MCA_btl_tcp_if_include=10.78.0.0/24
step() { # overlap: median ms of the last 7 of 10 steps
    ip netns exec $a timeout 120 mpirun -x PLIMSOLL_OVERLAP="$1" -n 2 --host 10.78.0.1:1,10.78.0.2:1 "$program" train wandistill/tiny \
        latent=16 student.hidden=256 student.depth=4 student.heads=4 batch=8 data.workers=0 eval.every=0 threads=1 train.steps=10 --json 2>"$dir/err" |
        sed -n 's/.*"event":"step".*"step_ms":\([0-9.]*\).*/\1/p' | tail -7 | sort -g | sed -n 4p
}
for ((i = 0; i < rounds; i++)); do echo "in place $(step 0) ms, beside $(step 1) ms"; done
