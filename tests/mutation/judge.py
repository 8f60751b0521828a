#!/usr/bin/env python3
"""Runs mutants against the fast sweeps and the fast suites of the unit tests that instrument.py has built.

    tests/mutation/judge.py SCRATCH [--results tests/mutation/results.jsonl] [-j 2] [--seconds N] [--again]

First each scenario of tests/mutation/scenarios.txt and each suite runs without a mutant: it has to be green, and tells
which mutants it comes to. Then each runs with every mutant that it comes to and that is still green, the shortest
first. The results have a line of JSON that says what was drawn, and then one a mutant, sorted. It can be stopped, and
goes on. --again judges survivors once more: after a new test, or a new scenario.
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
import time

HERE = pathlib.Path(__file__).resolve().parent
# A mutant that needs so much more processor time than the program as written, hangs; so does one that waits for ever.
# It may ask for any memory, and print for ever. Tests reserve much more address space than memory.
SLOWER, SLACK_S, WAITS_S = 6, 4, 120
MEMORY_BYTES_MAX, OUTPUT_BYTES_MAX = 3 << 30, 64 << 20
BASE_LIMIT_S = 1800
SLOW_SUITE_S = 8.0  # a suite of unit tests that takes longer is left out
# Most suites of the harness run scenarios, which scenarios.txt does with less work. These look where no scenario does.
ONLY = {"test_harness": ("StoredFigures.", "NamesOfARedRun.", "Livelock.", "Signals.")}
SURVIVES = "green"  # all that come to it are green
UNREACHED = "unreached"  # nothing comes to it


def bounded(cpu_s: float):
    resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_s) + 1, int(cpu_s) + 3))
    resource.setrlimit(resource.RLIMIT_FSIZE, (OUTPUT_BYTES_MAX, OUTPUT_BYTES_MAX))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def memory_bytes(process: int) -> int:
    try:
        return int(pathlib.Path(f"/proc/{process}/statm").read_text().split()[1]) * resource.getpagesize()
    except (OSError, IndexError):
        return 0  # it has just ended


def run(words: list, scratch: pathlib.Path, cpu_s: float, mutant: int = 0, reached: pathlib.Path = None):
    """(exit status, seconds of the processor, last line); the status is "hangs" where a limit of time or memory ends
    it."""
    env = dict(os.environ, SEEKSIM_MUTANT=str(mutant), SEEKSIM_HOME=str(scratch), SEEKSIM_PROPERTY_SEED="1")
    if reached:
        env["SEEKSIM_MUTANTS_REACHED"] = str(reached)
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(words, cwd=scratch, env=env, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=lambda: bounded(cpu_s))
        ends = time.monotonic() + 10 * cpu_s + WAITS_S
        ended, bytes_used = 0, 0
        while not ended and time.monotonic() < ends and bytes_used <= MEMORY_BYTES_MAX:
            time.sleep(0.02)
            bytes_used = memory_bytes(process.pid)
            ended, status, used = os.wait4(process.pid, os.WNOHANG)
        if not ended:
            os.killpg(process.pid, 9)
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = used.ru_utime + used.ru_stime
        hangs = not ended or (process.returncode in (-24, -9) and seconds >= cpu_s)
        output.seek(max(0, output.seek(0, os.SEEK_END) - 4096))
        lines = [line for line in output.read().decode(errors="replace").splitlines() if line.strip()]
    return "hangs" if hangs else process.returncode, seconds, lines[-1][:200] if lines else ""


def suites_of(program: pathlib.Path, scratch: pathlib.Path) -> list:
    """The suites of a test program that are fast, by their names (see tests/CMakeLists.txt)."""
    listed = subprocess.run([program, "--gtest_list_tests"], cwd=scratch, check=True, capture_output=True, text=True)
    lines = listed.stdout.splitlines()
    names = [line.split()[0] for line in lines if line and not line.startswith((" ", "Running"))]
    fast = [n for n in names if not any(word in n for word in ("Slow", "Gpu", "Mpi", "Nightly"))]
    return [n for n in fast if program.name not in ONLY or n in ONLY[program.name]]


def commands(scratch: pathlib.Path, unit_tests: list) -> dict:
    """Name -> (stage, words): the fast sweeps, and each suite of the unit tests."""
    program = scratch / "build/ci/seeksim"
    wanted = {}
    for line in (HERE / "scenarios.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if line:
            wanted[line] = ("sweep", [program, "run", *line.split(), "-j", "1", "--no-names"])
    for test in unit_tests:
        path = scratch / "build/ci/tests" / test
        for suite in suites_of(path, scratch):
            wanted[f"{test} {suite}*"] = ("unit test", [path, "--gtest_brief=1", f"--gtest_filter={suite}*"])
    return wanted


def base_run(scratch: pathlib.Path, wanted: dict, mutants: int, pool) -> list:
    """Each command with its seconds and the mutants that it comes to; stops where one is not green as written."""
    kept = scratch / "base.json"
    base = {entry["name"]: entry for entry in json.loads(kept.read_text())} if kept.exists() else {}

    def built(name):
        return wanted[name][1][0].stat().st_mtime_ns

    def one(name):
        with tempfile.NamedTemporaryFile() as reached:
            reached.truncate(mutants + 1)
            status, seconds, last = run(wanted[name][1], scratch, BASE_LIMIT_S, 0, pathlib.Path(reached.name))
            bits = pathlib.Path(reached.name).read_bytes()
        return {"stage": wanted[name][0], "name": name, "built": built(name), "status": status, "seconds": seconds, "last": last,
                "reaches": [i for i, bit in enumerate(bits) if bit]}

    for entry in pool.map(one, [n for n in wanted if n not in base or base[n]["built"] != built(n)]):
        base[entry["name"]] = entry
        kept.write_text(json.dumps(list(base.values())))
        print(f"as written: {entry['name']}: {entry['status']}, {entry['seconds']:.1f} s", flush=True)
    mine = [base[name] for name in wanted]
    wrong = [f"{b['name']}: {b['status']}: {b['last']}" for b in mine if b["status"] != 0]
    if wrong:
        raise SystemExit("mutation: not green as written:\n" + "\n".join(wrong))
    return [b for b in mine if b["stage"] == "sweep" or b["seconds"] <= SLOW_SUITE_S]


class Results:
    """The file of results: what was drawn, and a line a mutant."""

    def __init__(self, path: pathlib.Path, about: dict):
        self.path, self.head = path, {k: v for k, v in about.items() if k not in ("mutants", "unit_tests")}
        self.by_number = {}
        if path.exists():
            first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
            if first != self.head:
                raise SystemExit(f"mutation: {path} has the results of another draw: {first}. Name another file.")
            self.by_number = {result["mutant"]: result for result in rest}

    def survivors(self) -> list:
        return [n for n, result in self.by_number.items() if result["verdict"] in (SURVIVES, UNREACHED)]

    def put(self, number: int, mutant: dict, what: dict, again: bool):
        """Of a survivor all that names it, for it wants reading; of others where they are. instrument.py makes the
        rest again from the commit and the seed."""
        survives = what["verdict"] in (SURVIVES, UNREACHED)
        fields = ("path", "line", "function", "kind", "was", "becomes") if survives else ("path", "line", "kind")
        result = {"mutant": number, **{k: mutant[k] for k in fields}, **what}
        if again and not survives:
            result["again"] = True  # it survived once: a check was made of it
        self.by_number[number] = result
        lines = [self.head, *(self.by_number[n] for n in sorted(self.by_number))]
        written = self.path.with_suffix(".new")
        written.write_text("".join(json.dumps(line) + "\n" for line in lines))
        written.replace(self.path)


def judge(scratch: pathlib.Path, alive: dict, base: list, wanted: dict, pool, late) -> list:
    """Yields (mutant, what became of it): first those that turn red, in the order of the commands, then the others.
    Stops where `late`, with those that are not red by then left out."""
    for entry in sorted(base, key=lambda b: b["seconds"]):
        words, limit_s = wanted[entry["name"]][1], entry["seconds"] * SLOWER + SLACK_S
        mine = [n for n in entry["reaches"] if n in alive]

        def one(number):
            return None if late() else (number, run(words, scratch, limit_s, number))

        for done in pool.map(one, mine):
            if done is None:
                return
            number, (status, _, _) = done
            if status != 0:
                del alive[number]
                yield number, {"verdict": f"red in a {entry['stage']}", "by": entry["name"], "status": status}
    for number in alive:
        yield number, {"verdict": SURVIVES if any(number in b["reaches"] for b in base) else UNREACHED}


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("scratch", type=lambda text: pathlib.Path(text).resolve())
    words.add_argument("--results", type=pathlib.Path, default=HERE / "results.jsonl")
    words.add_argument("-j", type=int, default=os.cpu_count())
    words.add_argument("--seconds", type=float, default=float("inf"), help="begin nothing after so many seconds")
    words.add_argument("--again", action="store_true", help="judge survivors once more")
    given = words.parse_args()
    ends = time.monotonic() + given.seconds
    about = json.loads((given.scratch / "mutants.json").read_text())
    mutants = {int(n): m for n, m in about["mutants"].items()}
    results = Results(given.results, about)
    again = set(results.survivors() if given.again else ())
    alive = {n: mutants[n] for n in sorted(mutants) if n in again or n not in results.by_number}
    wanted = commands(given.scratch, about["unit_tests"])
    with concurrent.futures.ThreadPoolExecutor(given.j) as pool:
        base = base_run(given.scratch, wanted, max(mutants), pool)
        for number, what in judge(given.scratch, alive, base, wanted, pool, lambda: time.monotonic() > ends):
            results.put(number, mutants[number], what, number in again)
            print(number, what["verdict"], what.get("by", ""), flush=True)


if __name__ == "__main__":
    sys.exit(main())
