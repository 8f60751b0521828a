#!/usr/bin/env python3
"""Draws mutants by a seed, writes all of them into a scratch copy of the commit, and builds that once.

    tests/mutation/instrument.py SCRATCH [--build build/dev] [--mutants 500] [--seed 1] [--unit]

SCRATCH/mutants.json lists them; each of SCRATCH's programs becomes mutant N with SEEKSIM_MUTANT=N. A site whose edit
does not compile is given up and counted. Interrupted, it goes on where it was; run again, it brings new tests and
scenarios into SCRATCH.
"""
import argparse
import collections
import concurrent.futures
import json
import os
import pathlib
import random
import re
import subprocess
import sys

import sites

ROOT = pathlib.Path(__file__).resolve().parents[2]
WINGS = ("runtime", "sim")
# Processes, sockets and GPUs, where no simulated run comes; planted bugs and quirks, which have tests of their own.
NOT_HERE = ("runtime/backend/", "runtime/rules/", "runtime/trainer/planted", "runtime/trainer/planting")
UNIT_TESTS = ("test_sim", "test_runtime", "test_conformance", "test_judge", "test_harness")
ROUNDS_MAX = 12
# An edit may make a comparison or a variable pointless; the compiler's opinion of that is not asked.
QUIET = ("-Wparentheses", "-Wunused-variable", "-Wunused-but-set-variable", "-Wunused-but-set-parameter",
         "-Wtype-limits", "-Wsign-compare", "-Wunused-value", "-Wint-in-bool-context", "-Wbool-compare",
         "-Wreturn-type", "-Wdangling-else", "-Wextra", "-Wunused-parameter", "-Wunused-function",
         "-Wbool-operation", "-Wimplicit-fallthrough")


def told(words: list, **options) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True, **options).stdout.strip()


def _sites_of(task):
    path, arguments, builtin = task
    return sites.sites_of(path, ROOT, arguments, builtin)


def all_sites(build: pathlib.Path, jobs: int) -> list:
    """Every site of the wings, by path and place."""
    arguments = sites.compile_arguments(build)
    if any("/Unity/unity_" in source for source in arguments):
        raise SystemExit(f"mutation: {build} joins sources, and so has no arguments for each. Take one of the preset dev.")
    paths = [str(p.relative_to(ROOT)) for wing in WINGS for p in sorted((ROOT / wing).rglob("*.cpp"))]
    paths = [p for p in paths if not p.startswith(NOT_HERE) and str(ROOT / p) in arguments]
    builtin = told(["g++", "-print-file-name=include"])  # libclang of PyPI has no stddef.h of its own
    tasks = [(p, arguments[str(ROOT / p)], builtin) for p in paths]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        return [site for found in pool.map(_sites_of, tasks) for site in found]


def kept_sites(scratch: pathlib.Path, commit: str, build: pathlib.Path, jobs: int) -> list:
    """all_sites, kept in SCRATCH: to parse the sources takes minutes."""
    kept = scratch / "sites.json"
    if kept.exists():
        stored = json.loads(kept.read_text())
        if told(["git", "-C", ROOT, "diff", stored["commit"], "--stat", "--", *WINGS]):
            raise SystemExit(f"mutation: {scratch} has {' and '.join(WINGS)} of {stored['commit']}, and these differ. "
                             "Name another folder.")
        return [sites.Site(**{**s, "swapped": tuple(s["swapped"])}) for s in stored["sites"]]
    found = all_sites(build, jobs)
    kept.write_text(json.dumps({"commit": commit, "sites": [vars(s) for s in found]}))
    return found


def draw(found: list, count: int, seed: int) -> list:
    """Sites that do not overlap, as many of each kind as there are, in an order that the seed decides."""
    by_kind = collections.defaultdict(list)
    for site in found:
        by_kind[site.kind].append(site)
    dice = random.Random(seed)
    for kind in sorted(by_kind):
        dice.shuffle(by_kind[kind])
    taken, drawn = collections.defaultdict(list), []
    while len(drawn) < count and any(by_kind.values()):
        for kind in sorted(by_kind):
            while by_kind[kind]:
                site = by_kind[kind].pop()
                if all(site.end <= begin or end <= site.begin for begin, end in taken[site.path]):
                    taken[site.path].append((site.begin, site.end))
                    drawn.append(site)
                    break
    return drawn[:count]


def copy_tree(scratch: pathlib.Path):
    """The tree as it is on disk, new tests too, but for the sources that `write` writes. Equal files keep their time."""
    listed = told(["git", "-C", ROOT, "ls-files", "--cached", "--others", "--exclude-standard"]).splitlines()
    for path in listed:
        source, target = ROOT / path, scratch / path
        mine = target.suffix == ".cpp" and path.split("/")[0] in WINGS
        if not source.is_file() or (target.exists() and (mine or target.read_bytes() == source.read_bytes())):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(source.read_bytes())
        target.chmod(source.stat().st_mode)
    (scratch / "runtime/mutant.h").write_bytes((pathlib.Path(__file__).parent / "mutant.h").read_bytes())


def write(scratch: pathlib.Path, numbered: dict):
    """Each source of a wing with its mutants, from the source as it is in the tree. A file that is right already stays
    as it is, with its time, so that it does not compile again."""
    by_path = collections.defaultdict(list)
    for number, site in numbered.items():
        by_path[site.path].append((site, number))
    quiet = "".join(f'#pragma GCC diagnostic ignored "{warning}"\n' for warning in QUIET)
    for wing in WINGS:
        for target in (scratch / wing).rglob("*.cpp"):
            path = str(target.relative_to(scratch))
            source = (ROOT / path).read_bytes()
            for site, number in sorted(by_path[path], key=lambda c: -c[0].begin):
                source = source[:site.begin] + site.text(number).encode() + source[site.end:]
            if by_path[path]:
                source = f'#include "runtime/mutant.h"\n{quiet}#line 1\n'.encode() + source
            if target.read_bytes() != source:
                target.write_bytes(source)


def compile_errors(output: str) -> set:
    """(source, line) of each error of the compiler."""
    return {(m[1], int(m[2])) for m in re.finditer(r"((?:runtime|sim)/\S+?\.cpp):(\d+):\d+: error", output)}


def to_give_up(numbered: dict, wrong: set) -> set:
    """The mutants at these places; where an error stands beside them, all of that source."""
    bad = set()
    for path, line in wrong:
        here = {n: s for n, s in numbered.items() if s.path == path}
        at = {n for n, s in here.items() if s.line <= line <= s.line + s.was.count("\n")}
        bad |= at or set(here)
    return bad


def build_scratch(scratch: pathlib.Path, numbered: dict, targets: list, jobs: int) -> int:
    """Builds until all compiles; takes out of `numbered` what does not, and returns how many these are."""
    kept = scratch / "given_up.json"
    given_up = json.loads(kept.read_text()) if kept.exists() else []
    for number in given_up:
        del numbered[number]
    write(scratch, numbered)
    told(["cmake", "--preset", "ci", "-DSEEKSIM_UNITY=OFF", "-B", str(scratch / "build/ci")], cwd=scratch)
    for _ in range(ROUNDS_MAX):
        made = subprocess.run(["ninja", "-C", scratch / "build/ci", "-k", "0", f"-j{jobs}", *targets],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        (scratch / "build.log").write_text(made.stdout)
        if made.returncode == 0:
            return len(given_up)
        bad = to_give_up(numbered, compile_errors(made.stdout))
        if not bad:
            break
        for number in bad:
            del numbered[number]
        given_up += sorted(bad)
        kept.write_text(json.dumps(given_up))
        write(scratch, numbered)
    raise SystemExit(f"mutation: the scratch copy does not build: {scratch / 'build.log'}")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    words.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev",
                       help="a configured build of the tree, of the preset dev")
    words.add_argument("--mutants", type=int, default=500)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("--unit", action="store_true", help=f"build {', '.join(UNIT_TESTS)}, too: a second judge")
    words.add_argument("-j", type=int, default=os.cpu_count())
    given = words.parse_args()
    commit = told(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"])
    if told(["git", "-C", ROOT, "status", "--porcelain", *WINGS]):
        raise SystemExit("mutation: runtime/ or sim/ has changes that are not committed. Commit them first.")
    given.scratch.mkdir(parents=True, exist_ok=True)
    found = kept_sites(given.scratch, commit, given.build, given.j)
    print(f"{len(found)} sites in {len({s.path for s in found})} sources", flush=True)
    drawn = draw(found, given.mutants, given.seed)
    copy_tree(given.scratch)
    numbered = {i + 1: site for i, site in enumerate(drawn)}
    unit_tests = list(UNIT_TESTS if given.unit else ())
    given_up = build_scratch(given.scratch, numbered, ["seeksim", *unit_tests], given.j)
    (given.scratch / "mutants.json").write_text(json.dumps({
        "commit": json.loads((given.scratch / "sites.json").read_text())["commit"], "seed": given.seed,
        "unit_tests": unit_tests, "sites": len(found), "drawn": len(drawn), "do_not_compile": given_up,
        "mutants": {n: vars(s) for n, s in numbered.items()}}, indent=1))
    print(f"{len(numbered)} mutants built; {given_up} do not compile")


if __name__ == "__main__":
    sys.exit(main())
