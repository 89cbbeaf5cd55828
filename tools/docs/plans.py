"""plans.py - plans for the documents, computed once per build; not a program of its own.

A plan is a function of the program and its arguments. Results are kept in build/plans, by a hash of both, so a tool that runs a second
time, or after an interruption, plans only what is missing. Plans that took longest the last time start first: no core waits for the
last one alone.
"""
import concurrent.futures
import hashlib
import json
import os
import subprocess
import time

FOLDER = "build/plans"
LIMIT = 600  # seconds for one plan


def program():
    return os.environ.get("PL_BIN", "build/release/plimsoll")


def digest(path):
    h = hashlib.sha256()
    with open(path, "rb") as f:
        while block := f.read(1 << 20):
            h.update(block)
    return h.hexdigest()


def path_of(build, arguments):
    return os.path.join(FOLDER, hashlib.sha256((build + "\0" + "\0".join(arguments)).encode()).hexdigest()[:32] + ".json")


def store(path, value):
    """Writes a file that is whole or absent."""
    with open(f"{path}.{os.getpid()}", "w") as f:
        json.dump(value, f)
    os.replace(f.name, path)


def load(path):
    try:
        with open(path) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def one(build, arguments):
    """The plan as a dictionary; a text says why there is none."""
    path = path_of(build, arguments)
    known = load(path)
    if known:
        return known["plan"], known["seconds"]
    began = time.monotonic()
    try:
        # times that this machine has measured do not belong into documents
        out = subprocess.run([program(), "plan", *arguments, "--json"], capture_output=True, text=True, timeout=LIMIT,
                             env={**os.environ, "PLIMSOLL_CACHE": ""})
        plan = json.loads(out.stdout)
    except ValueError:
        return out.stderr.strip() or "no output", 0
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e), 0
    seconds = time.monotonic() - began
    store(path, {"arguments": arguments, "plan": plan, "seconds": seconds})
    return plan, seconds


def plan_all(lists):
    """Returns plans by their arguments, a tuple of words each. As many run at once as there are cores."""
    os.makedirs(FOLDER, exist_ok=True)
    build, times_path = digest(program()), os.path.join(FOLDER, "seconds.json")
    times = load(times_path) or {}
    wanted = sorted(set(map(tuple, lists)), key=lambda a: -times.get(" ".join(a), 1e9 if "--largest-batch" in a else 1e3))
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = dict(zip(wanted, pool.map(lambda a: one(build, list(a)), wanted)))
    times.update({" ".join(a): seconds for a, (_, seconds) in results.items() if seconds})
    store(times_path, times)
    for name in os.listdir(FOLDER):  # plans of other builds
        known = load(os.path.join(FOLDER, name))
        if known and name != "seconds.json" and path_of(build, known["arguments"]) != os.path.join(FOLDER, name):
            os.unlink(os.path.join(FOLDER, name))
    return {a: plan for a, (plan, _) in results.items()}
