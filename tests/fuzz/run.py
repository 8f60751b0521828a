#!/usr/bin/env python3
"""Fuzzes the parsers with libFuzzer (clang-16), and adds what was done to tests/fuzz/counts.json.

    tests/fuzz/run.py [--seconds N] [--total N] [--jobs N] [--rest build/ci] [TARGET...]
    tests/fuzz/run.py --report          what was done so far, and what the goal still lacks
    tests/fuzz/run.py --merge           puts small inputs that raise coverage into tests/fuzz/corpus

It works in slices of a minute; the next one goes to the target that is furthest from the goal. It goes on where it was
ended: corpora grow in build/fuzz/corpus, and counts are written after each slice. An input that ends the program is
kept in build/fuzz/found, and its target gets no more slices: mend the parser, then put the input into
tests/fuzz/corpus.

Exit status: 0, or 1 if an input was found, or 5 where there is no clang.
"""

import argparse
import concurrent.futures
import datetime
import hashlib
import itertools
import json
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import threading
import time

NO_CLANG = 5
SLICE_S = 60
TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD, COUNTS, CORPUS = TOP / "build/fuzz", TOP / "tests/fuzz/counts.json", TOP / "tests/fuzz/corpus"
WORDS, OF_NAMES = BUILD / "words.dict", ("scenario", "set", "ds_config")
STACK_BYTES = 512 << 10  # parsers run on the stacks of fibers, too
INPUT_BYTES_MAX = 32 << 10
# The goal: so many executions of each target and of all, and none of the last fifth reaches an edge for the first time.
GOAL, GOAL_OF_ALL, QUIET_SHARE = 10**6, 10**8, 1 / 5
# What --merge takes: the replay in CI runs each input 33 times.
MERGED_BYTES_MAX, MERGED_INPUTS_MAX = 2 << 10, 16


def build(rest):
    """Configures and builds build/fuzz/fuzz with the archives of the ordinary build `rest`."""
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("SEEKSIM_JOBS", "1")}
    configure = ["cmake", "--preset", "fuzz", f"-DSEEKSIM_FUZZ_REST={rest}"]
    for words in (configure, ["cmake", "--build", "--preset", "fuzz"]):
        subprocess.run(words, cwd=TOP, env=environment, check=True, stdout=subprocess.DEVNULL)


def write_words():
    """A dictionary of the names in a scenario and of numbers at the ends of types, so that mutations meet them."""
    schema = (TOP / "scenarios/schema.json").read_text()
    names = sorted(set(re.findall(r'"([a-z][a-z_0-9]{2,40})"', schema)))
    ends = ["9223372036854775807", "-9223372036854775808", "18446744073709551615", "2147483648", "1e300", "null"]
    WORDS.write_text("".join(f'"{word}"\n' for word in [*(f'\\"{name}\\"' for name in names), *ends]))


def small_stack():
    os.nice(15)
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))


def fuzzer(target, words):
    """Runs build/fuzz/fuzz on one target to its end."""
    if target in OF_NAMES:
        words = [*words, f"-dict={WORDS}"]
    bounds = [f"-max_len={INPUT_BYTES_MAX}", "-timeout=20", "-report_slow_units=20", "-rss_limit_mb=2048"]
    environment = {**os.environ, "SEEKSIM_FUZZ_TARGET": target}
    return subprocess.run([BUILD / "fuzz", *words, *bounds], cwd=TOP, env=environment, preexec_fn=small_stack,
                          capture_output=True)


def fuzz(target, seconds, long):
    """One slice: {"executions", "edges", "quiet": executions since an edge was reached first}, and the inputs found.

    `long` inputs at once, which are slower, or short ones that grow."""
    grown, found = BUILD / "corpus" / target, BUILD / "found"
    for folder in (grown, found):
        folder.mkdir(parents=True, exist_ok=True)
    before = set(found.glob(f"{target}-*"))
    words = [grown, CORPUS / target, f"-max_total_time={seconds}", "-print_final_stats=1"]
    done = fuzzer(target, [*words, f"-artifact_prefix={found}/{target}-", *(["-len_control=0"] if long else [])])
    said = done.stderr.decode(errors="replace")
    fresh = sorted(set(found.glob(f"{target}-*")) - before)
    marks = [(int(n), word, int(edges)) for n, word, edges in re.findall(r"(?m)^#(\d+)\s+(\w+)\s+cov: (\d+)", said)]
    if fresh:
        print(said[-6000:], file=sys.stderr)
    elif done.returncode != 0 or not marks:
        raise RuntimeError(f"{target}: the fuzzer ended with status {done.returncode}:\n{said[-3000:]}")
    last = re.search(r"stat::number_of_executed_units:\s*(\d+)", said)
    executions = int(last.group(1)) if last else max((n for n, _, _ in marks), default=0)
    edges, reached = 0, None
    for n, word, known in marks:
        if known > edges and word not in ("READ", "INITED"):
            reached = n
        edges = max(edges, known)
    return {"executions": executions, "edges": edges, "quiet": executions if reached is None else executions - reached,
            "grew": reached is not None}, fresh


def counts_so_far():
    return json.loads(COUNTS.read_text()) if COUNTS.exists() else {}


def add(target, done, found):
    """Adds a slice to the counts in the tree."""
    counts = counts_so_far()
    one = counts.setdefault(target, {"executions": 0, "since_new_edge": 0, "edges": 0, "found": 0})
    one["executions"] += done["executions"]
    one["since_new_edge"] = done["quiet"] if done["grew"] else one["since_new_edge"] + done["quiet"]
    one["edges"] = done["edges"]
    one["found"] += len(found)
    one["date"] = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    COUNTS.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")


def is_quiet(one):
    return one["since_new_edge"] >= QUIET_SHARE * one["executions"] > 0


def distance(counts, target):
    """Sorts the target that needs the next slice most to the front."""
    one = counts.get(target, {"executions": 0, "since_new_edge": 0})
    return one["executions"] >= GOAL and is_quiet(one), one["executions"] >= GOAL, one["executions"]


def work(targets, options):
    """Hands out slices until the seconds are spent. Returns the targets in which something was found."""
    lock = threading.Lock()
    left = {target: options.seconds for target in targets}
    busy, red = set(), set()
    long = itertools.cycle([False, True])
    end = time.monotonic() + options.total

    def turn():
        while time.monotonic() < end:
            with lock:
                free = [t for t in targets if left[t] > 0 and t not in busy and t not in red]
                if not free:
                    return
                counts = counts_so_far()
                target = min(free, key=lambda t: distance(counts, t))
                busy.add(target)
                seconds = min(SLICE_S, left[target])
                left[target] -= seconds
            done, found = fuzz(target, seconds, next(long))
            with lock:
                busy.remove(target)
                add(target, done, found)
                grew = ", new ones" if done["grew"] else ""
                print(f"{target}: {done['executions']} executions, {done['edges']} edges{grew}", flush=True)
                if found:
                    red.add(target)
                    print(f"{target}: FOUND {', '.join(map(str, found))}", flush=True)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as side_by_side:
        for worker in [side_by_side.submit(turn) for _ in range(options.jobs)]:
            worker.result()
    return red


def report(targets):
    """Prints a table of the counts, whose last row adds up."""
    counts = counts_so_far()
    print("| target | executions | edges | since the last new edge | found |\n|---|---|---|---|---|")
    for target in targets:
        one = counts.get(target, {"executions": 0, "since_new_edge": 0, "edges": 0, "found": 0})
        share = 100 * one["since_new_edge"] / max(1, one["executions"])
        print(f"| `{target}` | {one['executions']:,} | {one['edges']:,} | {share:.0f} % | {one['found']} |")
    total = sum(one["executions"] for one in counts.values())
    print(f"| all | {total:,} | | | {sum(one['found'] for one in counts.values())} |\n")
    enough = sum(counts.get(t, {"executions": 0})["executions"] >= GOAL for t in targets)
    quiet = sum(t in counts and is_quiet(counts[t]) for t in targets)
    print(f"Of {len(targets)} targets, {enough} have {GOAL:,} executions, and {quiet} reached no new edge in their "
          f"last fifth. All have {100 * total / GOAL_OF_ALL:.1f} % of {GOAL_OF_ALL:,}.")


def merge(targets):
    """Of what has grown, the smallest inputs that reach an edge which tests/fuzz/corpus does not."""
    for target in targets:
        merged, grown = BUILD / "merged" / target, BUILD / "corpus" / target
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        kept = {hashlib.sha1(file.read_bytes()).digest() for file in (CORPUS / target).iterdir()}
        for file in (CORPUS / target).iterdir():  # these stay, so that only what goes beyond them is added
            shutil.copy(file, merged)
        fuzzer(target, ["-merge=1", merged, grown]).check_returncode()
        fresh = [f for f in merged.iterdir() if hashlib.sha1(f.read_bytes()).digest() not in kept]
        small = [f for f in fresh if f.stat().st_size <= MERGED_BYTES_MAX]
        small.sort(key=lambda f: (f.stat().st_size, f.name))
        for file in small[:MERGED_INPUTS_MAX]:
            shutil.copy(file, CORPUS / target / file.name[:12])
        print(f"{target}: {min(len(small), MERGED_INPUTS_MAX)} of {len(fresh)} new inputs taken")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    everything = sorted(folder.name for folder in CORPUS.iterdir())
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(everything))
    parser.add_argument("--seconds", type=int, default=3600, help="of each target (default: an hour)")
    parser.add_argument("--total", type=float, default=float("inf"), help="begin no slice after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="targets side by side (default: 1)")
    parser.add_argument("--rest", type=pathlib.Path, default=TOP / "build/release", help="an ordinary build")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--merge", action="store_true")
    options = parser.parse_args()
    targets = options.targets or everything
    if unknown := [t for t in targets if t not in everything]:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(everything)}")
    if options.report:
        report(targets)
        return 0
    if shutil.which("clang++-16") is None:
        print("seeksim: no fuzzing: there is no clang++-16 (apt-get install clang-16 libclang-rt-16-dev)")
        return NO_CLANG
    build(options.rest.resolve())
    write_words()
    if options.merge:
        merge(targets)
        return 0
    return 1 if work(targets, options) else 0


if __name__ == "__main__":
    sys.exit(main())
