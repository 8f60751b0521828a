#!/usr/bin/env python3
"""Runs mutants against the fast sweeps and, where those stay green, against unit tests that instrument.py has built.

    tests/mutation/judge.py SCRATCH [--results tests/mutation/results.jsonl] [-j 2] [--most N] [--seconds N]

First each scenario of tests/mutation/scenarios.txt runs without a mutant: it has to be green, and tells which mutants
it comes to. A mutant is then run with these only, the shortest first, until one is red. The results have a line of JSON
that says what was drawn, and then one a mutant. It can be stopped, and goes on.
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
# A mutant that takes so much longer than the program as written, hangs. It may ask for any memory, and print for ever.
SLOWER, SLACK_S = 10, 15
MEMORY_BYTES_MAX, OUTPUT_BYTES_MAX = 6 << 30, 64 << 20
BASE_LIMIT_S = 1800


def bounded():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def run(words: list, scratch: pathlib.Path, limit_s: float, mutant: int = 0, reached: pathlib.Path = None):
    """(exit status, seconds, last line); the status is "hangs" after limit_s."""
    env = dict(os.environ, SEEKSIM_MUTANT=str(mutant))
    if reached:
        env["SEEKSIM_MUTANTS_REACHED"] = str(reached)
    begin = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, cwd=scratch, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=bounded)
        try:
            status = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            status = "hangs"
        seconds = time.monotonic() - begin
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
        lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return status, seconds, lines[-1][:200] if lines else ""


def suites_of(program: pathlib.Path, scratch: pathlib.Path) -> list:
    """The suites of a test program that are fast, by their names (see tests/CMakeLists.txt)."""
    listed = subprocess.run([program, "--gtest_list_tests"], cwd=scratch, check=True, capture_output=True, text=True)
    lines = listed.stdout.splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith((" ", "Running"))]
    return [n for n in names if not any(word in n for word in ("Slow", "Gpu", "Mpi", "Nightly"))]


def commands(scratch: pathlib.Path, unit_tests: list) -> list:
    """(stage, name, words): the fast sweeps, then each suite of the unit tests."""
    program = scratch / "build/ci/seeksim"
    wanted = []
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            wanted.append(("sweep", line, [program, "run", *line.split(), "-j", "1", "--no-names"]))
    for test in unit_tests:
        path = scratch / "build/ci/tests" / test
        for suite in suites_of(path, scratch):
            wanted.append(("unit test", f"{test} {suite}", [path, "--gtest_brief=1", f"--gtest_filter={suite}*"]))
    return wanted


def base_run(scratch: pathlib.Path, wanted: list, mutants: int, jobs: int) -> list:
    """Each command with its seconds and the mutants that it comes to; stops where one is not green as written."""
    kept, lock = scratch / "base.json", threading.Lock()
    base = {entry["name"]: entry for entry in json.loads(kept.read_text())} if kept.exists() else {}

    def one(command):
        stage, name, words = command
        if name in base:
            return
        with tempfile.NamedTemporaryFile() as reached:
            reached.truncate(mutants + 1)
            status, seconds, last = run(words, scratch, BASE_LIMIT_S, 0, pathlib.Path(reached.name))
            bits = pathlib.Path(reached.name).read_bytes()
        with lock:
            base[name] = {"stage": stage, "name": name, "status": status, "seconds": seconds, "last": last,
                          "reaches": [i for i, bit in enumerate(bits) if bit]}
            kept.write_text(json.dumps(list(base.values())))
            print(f"as written: {name}: {status}, {seconds:.1f} s", flush=True)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        list(pool.map(one, wanted))
    wrong = [f"{b['name']}: {b['status']}: {b['last']}" for b in base.values() if b["status"] != 0]
    if wrong:
        raise SystemExit("mutation: not green as written:\n" + "\n".join(wrong))
    return [base[name] for _, name, _ in wanted]


def judged(scratch: pathlib.Path, number: int, mutant: dict, wanted: list, base: list) -> dict:
    """What becomes of one mutant: red in a sweep or in a unit test, green in all that come to it, or unreached."""
    words_of = {name: words for _, name, words in wanted}
    result = {"mutant": number, **{k: mutant[k] for k in ("path", "line", "function", "kind", "was", "becomes")}}
    result.update(verdict="unreached", runs=0)
    for stage in ("sweep", "unit test"):
        mine = sorted((b for b in base if b["stage"] == stage and number in b["reaches"]), key=lambda b: b["seconds"])
        if mine:
            result["verdict"] = "green"
        for entry in mine:
            limit_s = entry["seconds"] * SLOWER + SLACK_S
            status, _, last = run(words_of[entry["name"]], scratch, limit_s, number)
            result["runs"] += 1
            if status != 0:
                result.update(verdict=f"red in a {stage}", by=entry["name"], status=status, how=last)
                return result
    return result


def opened(path: pathlib.Path, about: dict) -> set:
    """The mutants that have a result already. Writes the first line of a new file."""
    head = {k: v for k, v in about.items() if k != "mutants"}
    if not path.exists():
        path.write_text(json.dumps(head) + "\n")
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    if first != head:
        raise SystemExit(f"mutation: {path} has the results of another draw: {first}. Name another file.")
    return {result["mutant"] for result in rest}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    words.add_argument("--results", type=pathlib.Path, default=HERE / "results.jsonl")
    words.add_argument("-j", type=int, default=os.cpu_count())
    words.add_argument("--most", type=int, default=10**6, help="judge at most so many")
    words.add_argument("--seconds", type=float, default=float("inf"), help="begin no mutant after so many seconds")
    given = words.parse_args()
    begin = time.monotonic()
    about = json.loads((given.scratch / "mutants.json").read_text())
    mutants = {int(n): m for n, m in about["mutants"].items()}
    wanted = commands(given.scratch, about["unit_tests"])
    base = base_run(given.scratch, wanted, max(mutants), given.j)
    done = opened(given.results, about)
    todo = [n for n in sorted(mutants) if n not in done][:given.most]

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
