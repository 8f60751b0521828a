#!/usr/bin/env python3
"""Runs mutants against the fast sweeps and, where those stay green, against the unit tests. Can be stopped and goes on.

    tests/mutation/judge.py SCRATCH [--results tests/mutation/results.jsonl] [-j 2] [--most N] [--seconds N]

First each scenario of tests/mutation/scenarios.txt runs without a mutant: it has to be green, and tells which mutants it
comes to. A mutant is then run with these only, the shortest first, until one is red. One line of JSON a mutant.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
UNIT_TESTS = ("test_sim", "test_runtime")
# A mutant that takes so much longer than the program as written, hangs.
SLOWER, SLACK_S = 10, 30


def run(words: list, scratch: pathlib.Path, limit_s: float, mutant: int = 0, reached: pathlib.Path = None):
    """(exit status, seconds, last line); the status is "hangs" after limit_s."""
    env = dict(os.environ, SEEKSIM_MUTANT=str(mutant), COLUMNS="0")
    if reached:
        env["SEEKSIM_MUTANTS_REACHED"] = str(reached)
    begin = time.monotonic()
    with subprocess.Popen(words, cwd=scratch, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", start_new_session=True) as process:
        try:
            out, _ = process.communicate(timeout=limit_s)
            status = process.returncode
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            out, _ = process.communicate()
            status = "hangs"
    lines = [line for line in out.splitlines() if line.strip()]
    return status, time.monotonic() - begin, lines[-1][:200] if lines else ""


def suites_of(program: pathlib.Path, scratch: pathlib.Path) -> list:
    """The suites of a test program that are fast, by their names (see tests/CMakeLists.txt)."""
    listed = subprocess.run([program, "--gtest_list_tests"], cwd=scratch, check=True, capture_output=True, text=True).stdout
    names = [line.split()[0] for line in listed.splitlines() if line and not line.startswith((" ", "Running"))]
    return [n for n in names if not any(word in n for word in ("Slow", "Gpu", "Mpi", "Nightly"))]


def commands(scratch: pathlib.Path) -> list:
    """(stage, name, words): the fast sweeps, then each suite of the unit tests."""
    program = scratch / "build/ci/seeksim"
    wanted = []
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            wanted.append(("sweep", line, [program, "run", *line.split(), "-j", "1", "--no-names"]))
    for test in UNIT_TESTS:
        path = scratch / "build/ci/tests" / test
        for suite in suites_of(path, scratch):
            wanted.append(("unit", f"{test} {suite}", [path, "--gtest_brief=1", f"--gtest_filter={suite}*"]))
    return wanted


def base_run(scratch: pathlib.Path, wanted: list, mutants: int, jobs: int) -> list:
    """Each command with its seconds and the mutants that it comes to; stops where one is not green as written."""
    kept = scratch / "base.json"
    if kept.exists():
        stored = {entry["name"]: entry for entry in json.loads(kept.read_text())}
    else:
        stored = {}

    def one(command):
        stage, name, words = command
        if name in stored:
            return stored[name]
        with tempfile.NamedTemporaryFile() as reached:
            reached.truncate(mutants + 1)
            status, seconds, last = run(words, scratch, 1800, 0, pathlib.Path(reached.name))
            bits = pathlib.Path(reached.name).read_bytes()
        return {"stage": stage, "name": name, "status": status, "seconds": seconds, "last": last,
                "reaches": [i for i, bit in enumerate(bits) if bit]}

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        base = list(pool.map(one, wanted))
    wrong = [b for b in base if b["status"] != 0]
    if wrong:
        raise SystemExit("mutation: not green as written:\n" + "\n".join(f"{b['name']}: {b['status']}: {b['last']}" for b in wrong))
    kept.write_text(json.dumps(base))
    return base


def judged(scratch: pathlib.Path, number: int, mutant: dict, wanted: list, base: list) -> dict:
    words_of = {name: words for _, name, words in wanted}
    result = {k: mutant[k] for k in ("path", "line", "function", "kind", "was", "becomes")}
    result.update(mutant=number, verdict="unreached", runs=0)
    for stage in ("sweep", "unit"):
        mine = sorted((b for b in base if b["stage"] == stage and number in b["reaches"]), key=lambda b: b["seconds"])
        if mine:
            result["verdict"] = "green"
        for entry in mine:
            status, _, last = run(words_of[entry["name"]], scratch, entry["seconds"] * SLOWER + SLACK_S, number)
            result["runs"] += 1
            if status != 0:
                result.update(verdict=f"red in a {stage}", by=entry["name"], status=status, how=last)
                return result
    return result


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("scratch", type=pathlib.Path)
    words.add_argument("--results", type=pathlib.Path, default=HERE / "results.jsonl")
    words.add_argument("-j", type=int, default=os.cpu_count())
    words.add_argument("--most", type=int, default=10**6, help="judge at most so many")
    words.add_argument("--seconds", type=float, default=10**6, help="begin no mutant after so many seconds")
    given = words.parse_args()
    about = json.loads((given.scratch / "mutants.json").read_text())
    mutants = {int(n): m for n, m in about["mutants"].items()}
    wanted = commands(given.scratch)
    base = base_run(given.scratch, wanted, max(mutants), given.j)
    done = set()
    if given.results.exists():
        done = {json.loads(line)["mutant"] for line in given.results.read_text().splitlines()}
    todo = [n for n in sorted(mutants) if n not in done][:given.most]
    begin = time.monotonic()

    def one(number):
        if time.monotonic() - begin > given.seconds:
            return None
        return judged(given.scratch, number, mutants[number], wanted, base)

    with concurrent.futures.ThreadPoolExecutor(given.j) as pool, given.results.open("a") as results:
        for result in pool.map(one, todo):
            if result:
                results.write(json.dumps(result) + "\n")
                results.flush()
                print(result["mutant"], result["verdict"], result.get("by", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
