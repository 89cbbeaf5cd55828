#!/usr/bin/env python3
"""samples.py SAMPLES [BUILD] [LEAST_MS] - what pl_sampler.c wrote, as a tree of our functions.

A function's time is the time of all samples that have it on their stack below its caller; leaves
outside our programs are named by their library. Lines under LEAST_MS (default 10) are left out.
"""
import bisect
import collections
import os
import subprocess
import sys


def read(path):
    maps, samples, period = [], [], 1000
    for line in open(path):
        if line.startswith("period_us"):
            period = int(line.split()[1])
        elif line.startswith("map "):
            part = line.split()
            low, high = (int(x, 16) for x in part[1].split("-"))
            maps.append((low, high, int(part[3], 16), part[6] if len(part) > 6 else "?"))
        elif line.strip():
            samples.append([int(x, 16) for x in line.split()])
    return sorted(maps), samples, period


def symbols(program):
    """Sorted (address, name) of a program's functions, static ones too."""
    out = subprocess.run(["nm", "--defined-only", "-n", program], capture_output=True, text=True).stdout
    rows = [line.split() for line in out.splitlines()]
    return [(int(r[0], 16), r[2]) for r in rows if len(r) == 3 and r[1] in "tTwW"]


def loads(program):
    """(file offset, virtual address) of the program's executable segments."""
    out = subprocess.run(["readelf", "-lW", program], capture_output=True, text=True).stdout
    return [(int(p[1], 16), int(p[2], 16)) for p in (line.split() for line in out.splitlines())
            if p and p[0] == "LOAD" and "E" in "".join(p[6:-1])]


class Names:
    def __init__(self, maps, build):
        self.maps, self.build, self.known, self.cache = maps, build, {}, {}

    def table(self, file):
        if file not in self.known:
            own = os.path.join(self.build, os.path.basename(file))
            self.known[file] = (symbols(own), loads(own)) if os.path.exists(own) else None
        return self.known[file]

    def find(self, address):
        i = bisect.bisect(self.maps, (address, 1 << 63, 0, "")) - 1
        if i < 0 or address >= self.maps[i][1]:
            return "?", False
        low, _, offset, file = self.maps[i]
        table = self.table(file)
        if not table:
            return os.path.basename(file), False
        at = address - low + offset
        for off, vaddr in table[1]:
            at = address - low + offset - off + vaddr
        k = bisect.bisect(table[0], (at, "~")) - 1
        return (table[0][k][1] if k >= 0 else "?"), True

    def of(self, address):
        if address not in self.cache:
            self.cache[address] = self.find(address)
        return self.cache[address]


def main():
    maps, samples, period = read(sys.argv[1])
    build = sys.argv[2] if len(sys.argv) > 2 else "build/release"
    least = float(sys.argv[3]) if len(sys.argv) > 3 else 10
    names = Names(maps, build)
    tree = lambda: collections.defaultdict(tree)
    count = collections.Counter()
    for stack in samples:
        path = []
        for k, address in enumerate(reversed(stack)):
            name, ours = names.of(address - 1)
            if ours or k == len(stack) - 1:
                path.append(name)
        for depth in range(1, len(path) + 1):
            count[tuple(path[:depth])] += 1
    print(f"{len(samples) * period / 1e3:.0f} ms in {len(samples)} samples")
    children = collections.defaultdict(list)
    for path in count:
        children[path[:-1]].append(path)
    def show(path, depth):
        for p in sorted(children[path], key=lambda p: -count[p]):
            ms = count[p] * period / 1e3
            if ms >= least:
                print(f"{ms:8.0f} ms {'  ' * depth}{p[-1]}")
                show(p, depth + 1)
    show((), 0)


if __name__ == "__main__":
    main()
