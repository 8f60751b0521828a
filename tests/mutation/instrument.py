#!/usr/bin/env python3
"""Draws mutants by a seed, writes all of them into a scratch copy of the tree, and builds it once.

    tests/mutation/instrument.py SCRATCH --build build/ci [--mutants 500] [--seed 1]

SCRATCH/mutants.json lists them; each of SCRATCH's programs becomes mutant N with SEEKSIM_MUTANT=N. A site whose edit does
not compile is given up and counted.
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
# Processes, sockets and GPUs: no simulated run comes there.
NOT_HERE = ("runtime/backend/",)
TARGETS = ("seeksim", "test_runtime", "test_sim")
# An edit may make a comparison or a variable pointless; the compiler's opinion of that is not asked.
QUIET = ("-Wparentheses", "-Wunused-variable", "-Wunused-but-set-variable", "-Wtype-limits", "-Wsign-compare", "-Wunused-value",
         "-Wint-in-bool-context", "-Wbool-compare", "-Wreturn-type", "-Wdangling-else", "-Wextra", "-Wunused-parameter")


def builtin_headers() -> str:
    """Where stddef.h and the like are: libclang of PyPI has none of its own."""
    return subprocess.run(["g++", "-print-file-name=include"], check=True, capture_output=True, text=True).stdout.strip()


def _sites_of(task):
    path, arguments, builtin = task
    return sites.sites_of(path, ROOT, arguments, builtin)


def all_sites(build: pathlib.Path, jobs: int) -> list:
    arguments = sites.compile_arguments(build)
    paths = [str(p.relative_to(ROOT)) for wing in WINGS for p in sorted((ROOT / wing).rglob("*.cpp"))]
    paths = [p for p in paths if not p.startswith(NOT_HERE) and str(ROOT / p) in arguments]
    tasks = [(p, arguments[str(ROOT / p)], builtin_headers()) for p in paths]
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        return [site for found in pool.map(_sites_of, tasks) for site in found]


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


def write(scratch: pathlib.Path, numbered: dict):
    """Each source with its mutants, from the source as it is in the tree."""
    by_path = collections.defaultdict(list)
    for number, site in numbered.items():
        by_path[site.path].append((site, number))
    head = '#include "runtime/mutant.h"\n' + "".join(f'#pragma GCC diagnostic ignored "{w}"\n' for w in QUIET) + "#line 1\n"
    for path, chosen in by_path.items():
        source = (ROOT / path).read_bytes()
        for site, number in sorted(chosen, key=lambda c: -c[0].begin):
            source = source[:site.begin] + site.text(number).encode() + source[site.end:]
        text = head.encode() + source
        target = scratch / path
        if target.read_bytes() != text:
            target.write_bytes(text)


def compile_errors(output: str) -> set:
    """(source, line) of each error of the compiler."""
    return {(m[1], int(m[2])) for m in re.finditer(r"((?:runtime|sim)/\S+?\.cpp):(\d+):\d+: error", output)}


def build_scratch(scratch: pathlib.Path, numbered: dict, jobs: int) -> list:
    """Builds until it compiles; returns the sites that had to be given up."""
    given_up = []
    for _ in range(8):
        write(scratch, numbered)
        made = subprocess.run(["cmake", "--preset", "ci", "-B", scratch / "build/ci"], cwd=scratch, capture_output=True, text=True)
        if made.returncode != 0:
            raise SystemExit(f"mutation: cmake failed:\n{made.stderr[-2000:]}")
        made = subprocess.run(["ninja", "-C", scratch / "build/ci", "-k", "0", f"-j{jobs}", *TARGETS],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        (scratch / "build.log").write_text(made.stdout)
        if made.returncode == 0:
            return given_up
        wrong = compile_errors(made.stdout)
        bad = [n for n, s in numbered.items()
               if any(p == s.path and s.line <= line <= s.line + s.was.count("\n") for p, line in wrong)]
        if not bad:
            raise SystemExit(f"mutation: the scratch copy does not build: {scratch / 'build.log'}")
        given_up += [numbered.pop(n) for n in bad]
    raise SystemExit("mutation: the scratch copy still does not build after eight rounds")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("scratch", type=pathlib.Path)
    words.add_argument("--build", type=pathlib.Path, default=ROOT / "build/ci", help="a configured build of the tree")
    words.add_argument("--mutants", type=int, default=500)
    words.add_argument("--seed", type=int, default=1)
    words.add_argument("-j", type=int, default=os.cpu_count())
    given = words.parse_args()
    found = all_sites(given.build, given.j)
    print(f"{len(found)} sites in {len({s.path for s in found})} sources", flush=True)
    numbered = {i + 1: site for i, site in enumerate(draw(found, given.mutants, given.seed))}
    given.scratch.mkdir(parents=True, exist_ok=True)
    tree = subprocess.run(["git", "-C", ROOT, "archive", "HEAD"], check=True, capture_output=True).stdout
    subprocess.run(["tar", "x", "-C", given.scratch], input=tree, check=True)
    (given.scratch / "runtime/mutant.h").write_bytes((pathlib.Path(__file__).parent / "mutant.h").read_bytes())
    given_up = build_scratch(given.scratch, numbered, given.j)
    commit = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=12", "HEAD"], check=True, capture_output=True, text=True)
    (given.scratch / "mutants.json").write_text(json.dumps({
        "commit": commit.stdout.strip(), "seed": given.seed, "sites": len(found), "do_not_compile": len(given_up),
        "mutants": {n: vars(s) for n, s in numbered.items()}}, indent=1))
    print(f"{len(numbered)} mutants built; {len(given_up)} do not compile")


if __name__ == "__main__":
    sys.exit(main())
