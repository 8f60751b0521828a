#!/usr/bin/env python3
"""Fuzzes the parsers with libFuzzer (clang-16), and adds what was done to tests/fuzz/counts.json.

    tests/fuzz/run.py [--seconds N] [--total N] [--jobs N] [--rest build/ci] [TARGET...]
    tests/fuzz/run.py --report          what was done so far, also into docs/fuzzing.md, and what the goal still lacks
    tests/fuzz/run.py --merge           puts small inputs that raise coverage into tests/fuzz/corpus
    tests/fuzz/run.py --keep            puts what has grown into tests/fuzz/grown.tar.xz, for the next session

It works in slices of a minute; the next one goes to the target that is furthest from the goal. It goes on where it was
ended: corpora grow in build/fuzz/corpus, from tests/fuzz/grown.tar.xz where nothing has grown yet, and counts are
written after each slice. An input that ends the program is
kept in build/fuzz/found, and its target gets no more slices: mend the parser, then put the input into
tests/fuzz/corpus.

On a machine with more cores, which needs Python and no compiler:

    tests/fuzz/run.py --rest build/ci --kit kit.tar.gz                          here: makes the kit
    tests/fuzz/run.py --program program/fuzz --into OUT --jobs 16 --total 300   there, where it was unpacked
    tests/fuzz/run.py --take OUT/fuzz-home.tar.gz                               here: joins counts and corpora

Exit status: 0, or 1 if an input was found or a fuzzer could not run, or 5 where there is no clang.
"""

import argparse
import concurrent.futures
import hashlib
import itertools
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import away
import tally
from slices import MODES, Fuzzer, Slice

NO_CLANG = 5
FIRST_SLICE_S, SLICE_S, LEAST_SLICE_S = 10, 60, 3
MERGE_S = 25  # what --into keeps of --total for making the grown corpora small
TOP = pathlib.Path(__file__).resolve().parents[2]
BUILD, COUNTS, CORPUS = TOP / "build/fuzz", TOP / "tests/fuzz/counts.json", TOP / "tests/fuzz/corpus"
PAGE, GROWN = TOP / "docs/fuzzing.md", TOP / "tests/fuzz/grown.tar.xz"
# What --merge takes: the replay in CI runs each input 33 times.
MERGED_BYTES_MAX, MERGED_INPUTS_MAX = 2 << 10, 16


def build(rest):
    """Configures and builds build/fuzz/fuzz with the archives of the ordinary build `rest`."""
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": os.environ.get("SEEKSIM_JOBS", "1")}
    configure = ["cmake", "--preset", "fuzz", f"-DSEEKSIM_FUZZ_REST={rest}"]
    for words in (configure, ["cmake", "--build", "--preset", "fuzz"]):
        subprocess.run(words, cwd=TOP, env=environment, check=True, stdout=subprocess.DEVNULL)
    return BUILD / "fuzz"


def work(targets, fuzzer, counts, options):
    """Hands out slices until the seconds are spent. Returns the targets in which something was found or went wrong."""
    lock = threading.Lock()
    left = {target: options.seconds for target in targets}
    modes = {target: itertools.cycle(MODES) for target in targets}
    end, red = time.monotonic() + options.total, set()

    def take_turn():
        with lock:
            room = min(SLICE_S, end - time.monotonic())
            free = [t for t in targets if left[t] > 0 and t not in red]
            if room < LEAST_SLICE_S or not free:
                return None
            target = counts.next(free, SLICE_S)
            seconds = min(room, left[target], SLICE_S if target in counts.rates else FIRST_SLICE_S)
            left[target] -= seconds
            one = Slice(target, next(modes[target]))
            counts.running.setdefault(target, []).append(one)
        return one, seconds

    def end_turn(one):
        with lock:
            counts.add(one)
            grew = ", new ones" if one.reached_at else ""
            print(f"{one.target}: {one.executions} {one.mode} executions, {one.edges} edges{grew}", flush=True)
            if one.found or one.trouble:
                red.add(one.target)
                print(one.trouble or f"{one.target}: FOUND {', '.join(one.found)}", flush=True)

    def worker():
        while turn := take_turn():
            end_turn(turn[0].run(fuzzer, turn[1]))

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as side_by_side:
        for one in [side_by_side.submit(worker) for _ in range(options.jobs)]:
            one.result()
    return red


def work_away(targets, program, options):
    """Works in a kit, from its corpora, and leaves in --into what has to come home."""
    options.into.mkdir(parents=True, exist_ok=True)
    options.total -= MERGE_S
    place = away.workplace()
    if (BUILD / "corpus").is_dir():
        shutil.copytree(BUILD / "corpus", place / "corpus")
    fuzzer = Fuzzer(program, place, CORPUS, TOP, options.nice)
    fuzzer.probe(targets[0])
    counts = tally.Tally(options.into / "counts.json", began=tally.read(COUNTS))
    red = work(targets, fuzzer, counts, options)

    with concurrent.futures.ThreadPoolExecutor(options.jobs) as side_by_side:
        list(side_by_side.map(fuzzer.shrink, targets))
    away.pack_home(options.into, counts, place)
    say(counts.now, targets)
    return red


def merge(targets, fuzzer):
    """Of what has grown, the smallest inputs that reach an edge which tests/fuzz/corpus does not."""
    for target in targets:
        merged, grown = BUILD / "merged" / target, BUILD / "corpus" / target
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        kept = {hashlib.sha1(file.read_bytes()).digest() for file in (CORPUS / target).iterdir()}
        for file in (CORPUS / target).iterdir():  # these stay, so that only what goes beyond them is added
            shutil.copy(file, merged)
        if not fuzzer.merge(target, merged, grown):
            raise RuntimeError(f"{target}: the corpora could not be merged")
        fresh = [f for f in merged.iterdir() if hashlib.sha1(f.read_bytes()).digest() not in kept]
        small = [f for f in fresh if f.stat().st_size <= MERGED_BYTES_MAX]
        small.sort(key=lambda f: (f.stat().st_size, f.name))
        for file in small[:MERGED_INPUTS_MAX]:
            shutil.copy(file, CORPUS / target / file.name[:12])
        print(f"{target}: {min(len(small), MERGED_INPUTS_MAX)} of {len(fresh)} new inputs taken")


def say(counts, targets):
    print(f"{tally.table(counts, targets)}\n{tally.lacks(counts, targets)}")


def words(everything):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(everything))
    parser.add_argument("--seconds", type=int, default=3600, help="of each target (default: an hour)")
    parser.add_argument("--total", type=float, default=float("inf"), help="end after so many seconds")
    parser.add_argument("--jobs", type=int, default=1, help="slices side by side (default: 1)")
    parser.add_argument("--nice", type=int, default=15, help="of the fuzzers (default: 15)")
    parser.add_argument("--rest", type=pathlib.Path, default=TOP / "build/release", help="an ordinary build")
    parser.add_argument("--program", type=pathlib.Path, help="a fuzzer that was built elsewhere: nothing is built")
    parser.add_argument("--into", type=pathlib.Path, metavar="FOLDER", help="with --program: the result, to carry home")
    parser.add_argument("--kit", type=pathlib.Path, metavar="FILE", help="pack what another machine needs")
    parser.add_argument("--take", type=pathlib.Path, metavar="FILE", help="take in what another machine did")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--merge", action="store_true")
    parser.add_argument("--keep", action="store_true")
    options = parser.parse_args()
    options.targets = options.targets or everything
    if unknown := [t for t in options.targets if t not in everything]:
        parser.error(f"there is no target {', '.join(unknown)}; there are {', '.join(everything)}")
    if options.into and not options.program:
        parser.error("--into FOLDER goes with --program PATH")
    return options


def main():
    everything = sorted(folder.name for folder in CORPUS.iterdir())
    options = words(everything)
    targets = options.targets
    if options.report or options.take:
        found = away.take_home(options.take, COUNTS, BUILD) if options.take else []
        say(tally.read(COUNTS), everything)
        if PAGE.exists():
            tally.mend_page(PAGE, tally.table(tally.read(COUNTS), everything))
        print("".join(f"FOUND {file}\n" for file in found), end="")
        return 1 if found else 0
    if options.into:
        return 1 if work_away(targets, options.program.resolve(), options) else 0
    if not options.program and shutil.which("clang++-16") is None:
        print("seeksim: no fuzzing: there is no clang++-16 (apt-get install clang-16 libclang-rt-16-dev)")
        return NO_CLANG
    program = options.program.resolve() if options.program else build(options.rest.resolve())
    fuzzer = Fuzzer(program, BUILD, CORPUS, TOP, options.nice)
    if options.kit:
        away.make_kit(options.kit, fuzzer, targets)
        return 0
    if options.merge:
        merge(targets, fuzzer)
        return 0
    if options.keep:
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as side_by_side:
            list(side_by_side.map(fuzzer.shrink_to_edges, everything))
        away.keep(GROWN, BUILD)
        return 0
    fuzzer.probe(targets[0])
    away.take_kept(GROWN, BUILD / "corpus")
    for target in targets:
        fuzzer.tidy(target)
    return 1 if work(targets, fuzzer, tally.Tally(COUNTS), options) else 0


if __name__ == "__main__":
    sys.exit(main())
