#!/usr/bin/env python3
"""Fuzzes the parsers with libFuzzer (clang-14), and adds what was done to tests/fuzz/counts.json.

    tests/fuzz/run.py [--seconds N] [--jobs N] [--rest build/ci] [TARGET...]

It goes on where it was ended: corpora grow in build/fuzz/corpus, and the counts are written after each slice of a
minute. What ends the program is kept in build/fuzz/found; put it into tests/fuzz/corpus when it is mended.

Exit status: 0, or 1 if an input was found, or 5 where there is no clang.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading

NO_CLANG = 5
SLICE_S = 60
TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD, COUNTS = TOP / "build/fuzz", TOP / "tests/fuzz/counts.json"
STACK_BYTES = 512 << 10  # parsers run on the stacks of fibers, too
COUNTING = threading.Lock()
INPUT_BYTES_MAX = 32 << 10


def build(rest):
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("SEEKSIM_JOBS", "1")}
    for words in (["cmake", "--preset", "fuzz", f"-DSEEKSIM_FUZZ_REST={rest}"], ["cmake", "--build", "--preset", "fuzz"]):
        subprocess.run(words, cwd=TOP, env=environment, check=True, stdout=subprocess.DEVNULL)


def small_stack():
    os.nice(19)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))


def fuzz(target, seconds):
    """One slice. Returns executions, whether coverage grew, and the inputs that ended the program."""
    grown, found = BUILD / "corpus" / target, BUILD / "found"
    for folder in (grown, found):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(found.glob(f"{target}-*"))
    words = [BUILD / "fuzz", grown, TOP / "tests/fuzz/corpus" / target, f"-max_total_time={seconds}",
             f"-max_len={INPUT_BYTES_MAX}", "-timeout=20", "-rss_limit_mb=2048", "-print_final_stats=1",
             f"-artifact_prefix={found}/{target}-"]
    done = subprocess.run(words, cwd=TOP, env={**os.environ, "SEEKSIM_FUZZ_TARGET": target}, preexec_fn=small_stack,
                          capture_output=True)
    said = done.stderr.decode(errors="replace")
    count = re.search(r"stat::number_of_executed_units:\s*(\d+)", said) or re.search(r"(?s).*#(\d+)\s", said)
    fresh = sorted(set(found.glob(f"{target}-*")) - before)
    if fresh:
        print(said[-6000:], file=sys.stderr)
    elif count is None or done.returncode != 0:
        raise RuntimeError(f"{target}: the fuzzer ended with status {done.returncode}:\n{said[-3000:]}")
    return int(count.group(1)) if count else 0, "\tNEW" in said or " NEW " in said, fresh


def add(target, executions, grew, found):
    with COUNTING:
        add_alone(target, executions, grew, found)


def add_alone(target, executions, grew, found):
    counts = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    one = counts.setdefault(target, {"executions": 0, "since_new_coverage": 0, "found": 0})
    one["executions"] += executions
    one["since_new_coverage"] = 0 if grew else one["since_new_coverage"] + executions
    one["found"] += len(found)
    one["date"] = datetime.date.today().isoformat()
    commit = subprocess.run(["git", "rev-parse", "--short=12", "HEAD"], cwd=TOP, capture_output=True, text=True)
    one["commit"] = commit.stdout.strip() or "unknown"
    COUNTS.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")


def work_on(target, seconds):
    """True: an input was found that ends the program."""
    for left in range(seconds, 0, -SLICE_S):
        executions, grew, found = fuzz(target, min(SLICE_S, left))
        add(target, executions, grew, found)
        print(f"{target}: {executions} executions{', new coverage' if grew else ''}", flush=True)
        if found:
            print(f"{target}: FOUND {', '.join(map(str, found))}", flush=True)
            return True
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--seconds", type=int, default=3600, help="of each target (default: an hour)")
    parser.add_argument("--jobs", type=int, default=1, help="targets side by side (default: 1)")
    parser.add_argument("--rest", type=pathlib.Path, default=TOP / "build/release", help="an ordinary build")
    options = parser.parse_args()
    if shutil.which("clang++-14") is None:
        print("seeksim: no fuzzing: there is no clang++-14 (apt-get install clang-14 libclang-rt-14-dev)")
        return NO_CLANG
    build(options.rest.resolve())
    everything = sorted(folder.name for folder in (TOP / "tests/fuzz/corpus").iterdir())
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as side_by_side:
        found = list(side_by_side.map(lambda target: work_on(target, options.seconds), options.targets or everything))
    return 1 if any(found) else 0


if __name__ == "__main__":
    sys.exit(main())
