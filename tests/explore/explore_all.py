#!/usr/bin/env python3
"""Explores each scenario of tests/explore/scenarios.txt for a while. Each red case is a bug: of the program, or of a
check that cries wolf. Can be broken off and goes on: what was looked at is added to a file of results.

    tests/explore/explore_all.py build/ci/seeksim --minutes 10 --seed 7
    tests/explore/explore_all.py build/ci/seeksim --table      # what has been looked at so far, as Markdown

Of a sweep, one row is explored at a time, another one by each seed. Ends with status 1 where something is red, and 5
where no scenario was explored.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent


def scenarios():
    """The files of scenarios.txt."""
    lines = (HERE / "scenarios.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def row_of(program, scenario, seed):
    """--set arguments of one row of a sweep; [] where it is none."""
    with tempfile.TemporaryDirectory() as folder:
        report = pathlib.Path(folder) / "report.json"
        subprocess.run([program, "run", scenario, "--report", str(report)], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        rows = json.loads(report.read_text()).get("rows", []) if report.exists() else []
    if not rows:
        return []
    settings = rows[seed % len(rows)]["settings"]
    sets = ["--set", "sweep={}"]
    for key, value in settings.items():
        sets += ["--set", f"{key}={json.dumps(value)}"]
    return sets


def explore(program, scenario, seed, seconds, jobs, out):
    """One line of results."""
    sets = row_of(program, scenario, seed)
    report = pathlib.Path(out) / "explore.json"
    report.unlink(missing_ok=True)
    run = subprocess.run([program, "explore", scenario, *sets, "--budget", f"{seconds}s", "--seed", str(seed),
                          "--jobs", str(jobs), "--out", out, "--report", str(report)],
                         check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if not report.exists():
        return {"scenario": scenario, "sets": sets, "status": run.returncode, "said": run.stdout[-500:]}
    told = json.loads(report.read_text())
    return {"scenario": scenario, "sets": sets, "seed": seed, "status": run.returncode,
            "seconds": round(told["wall_s"] * jobs, 1), "cases": told["cases"], "red": told["red"],
            "found": [{"check": f["check"], "why": f["why"], "file": f["file"]} for f in told["found"]]}


def table(lines):
    """Markdown: seconds and cases by scenario."""
    by = {}
    for line in lines:
        one = by.setdefault(line["scenario"], [0.0, 0, 0])
        one[0] += line.get("seconds", 0)
        one[1] += line.get("cases", 0)
        one[2] += line.get("red", 0)
    print("| scenario | seconds of a core | cases | red |\n|---|---|---|---|")
    for scenario, (seconds, cases, red) in sorted(by.items()):
        print(f"| {scenario.removeprefix('scenarios/').removesuffix('.json')} | {seconds:.0f} | {cases:,} | {red} |")
    print(f"| all {len(by)} | {sum(x[0] for x in by.values()):.0f} | {sum(x[1] for x in by.values()):,} "
          f"| {sum(x[2] for x in by.values())} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--minutes", type=float, default=10, help="of each scenario (default: 10)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--results", default=str(HERE / "results.jsonl"))
    parser.add_argument("--only", default="", help="scenarios whose name has this in it")
    parser.add_argument("--table", action="store_true")
    a = parser.parse_args()
    results = pathlib.Path(a.results)
    lines = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    if a.table:
        table(lines)
        return 0
    done = {line["scenario"] for line in lines if line.get("seed") == a.seed}
    status = 5
    for scenario in scenarios():
        if a.only not in scenario or scenario in done:
            continue
        with tempfile.TemporaryDirectory() as out:
            line = explore(a.program, scenario, a.seed, max(1, round(60 * a.minutes)), a.jobs, out)
            with results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            red = line["status"] != 0
            print(f"{'RED ' if red else 'ok: '} {scenario}: {line.get('cases', 0)} cases", flush=True)
            for found in line.get("found", []):
                print("  ", found["why"], "\n", pathlib.Path(found["file"]).read_text(), flush=True)
            if "said" in line:
                print(line["said"], flush=True)
            status = 1 if red else (0 if status == 5 else status)
    return status


if __name__ == "__main__":
    sys.exit(main())
