#!/usr/bin/env python3
"""The goals of large worlds and of speed, in one run: what each takes, and the slow path or the peer beside it, in turn.

    python3 bench/goals.py BUILD [--torch PYTHON] [--turns N] [--only WORD]

BUILD: a build folder with `seeksim` and the programs of `ninja bench`. --torch: a Python that has torch, for the step
beside PyTorch's. Prints a table in Markdown; each figure is the median of the turns, with the least and the greatest.
Nothing else should run beside it.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Callable, Dict, List, Tuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
Figures = List[float]


class Used:
    """What a process took: seconds of the clock and of processors, its peak in MiB; and what it printed."""

    def __init__(self, command: List[str], fails: bool = False) -> None:
        with tempfile.TemporaryFile() as out:
            began = time.perf_counter()
            child = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)
            _, status, use = os.wait4(child.pid, 0)
            self.wall_s = time.perf_counter() - began
            self.processor_s = use.ru_utime + use.ru_stime
            self.peak_mib = use.ru_maxrss / 1024
            out.seek(0)
            self.said = out.read().decode(errors="replace")
        if os.waitstatus_to_exitcode(status) != 0 and not fails:
            raise SystemExit(f"{' '.join(command)} failed:\n{self.said[-2000:]}")


def text(figures: Figures, unit: str) -> str:
    figures = sorted(figures)
    middle = statistics.median(figures)
    digits = 0 if middle >= 100 else 1 if middle >= 10 else 2
    spread = f" ({figures[0]:.{digits}f} to {figures[-1]:.{digits}f})" if len(figures) > 1 else ""
    return f"{middle:.{digits}f} {unit}{spread}"


class Goals:
    def __init__(self, build: pathlib.Path, torch: str, turns: int) -> None:
        self.seeksim = str(build / "seeksim")
        self.programs = build / "bench"
        self.torch = torch
        self.turns = turns

    def run(self, *arguments: str, fails: bool = False) -> Used:
        return Used([self.seeksim, *arguments], fails)

    def in_turn(self, *sides: Callable[[], Used]) -> List[List[Used]]:
        """Each side once a turn, so that what slows the machine slows all."""
        taken: List[List[Used]] = [[] for _ in sides]
        for _ in range(self.turns):
            for side, all_of_it in zip(sides, taken):
                all_of_it.append(side())
        return taken

    # ---- large worlds

    def world(self, file: str, sets: List[str], slow_sets: List[str]) -> Tuple[str, str]:
        def with_sets(all_sets: List[str], *more: str) -> Callable[[], Used]:
            return lambda: self.run("run", file, *more, *(word for one in all_sets for word in ("--set", one)))

        fast, slow = self.in_turn(with_sets(sets), with_sets(sets + slow_sets, "--rank-by-rank"))
        told = [
            f"{text([one.processor_s for one in side], 's')}, {max(one.peak_mib for one in side):.0f} MiB"
            for side in (fast, slow)
        ]
        return told[0], f"{told[1]}: {', '.join(slow_sets)}, `--rank-by-rank`"

    def llama(self) -> Tuple[str, str]:
        small = ["world.nodes=64", "deepspeed.train_batch_size=64", "world.steady=true"]
        return self.world("bench/llama3_405b.json", [], small)

    def tiny(self, stage: int) -> Tuple[str, str]:
        small = ["world.nodes=128", "deepspeed.train_batch_size=1024", "world.steady=true"]
        return self.world("bench/alike.json", [f"deepspeed.zero_optimization.stage={stage}"], small)

    def hundred_thousand(self) -> Tuple[str, str]:
        sets = ["world.nodes=12500", "deepspeed.train_batch_size=100000", "deepspeed.zero_optimization.stage=0"]
        small = ["world.nodes=512", "deepspeed.train_batch_size=4096"]
        return self.world("bench/alike.json", sets, small)

    def campaign(self) -> Tuple[str, str]:
        fast, slow = self.in_turn(
            lambda: self.run("study", "scenarios/studies/young_daly_16k.json"),
            lambda: self.run("run", "scenarios/campaigns/young_daly.json"),
        )
        return (
            f"{text([one.processor_s for one in fast], 's')} for the whole study",
            f"{text([one.processor_s for one in slow], 's')}: `young_daly.json`, step by step, 2 ranks",
        )

    # ---- predicted times beside published ones

    def errors(self, kind: str) -> Tuple[str, str]:
        """Of the rows that the fit has not seen; beside it those that it has. The page is made anew first."""
        self.run("reference", ".")
        page = (ROOT / "docs/reference/calibration.md").read_text(encoding="utf-8")
        told: Dict[bool, List[str]] = {True: [], False: []}
        for line in page.splitlines():
            if line.startswith(f"| {kind} |"):
                seen, rows, median, worst, near = (word.strip() for word in line.split("|")[2:7])
                told[seen == "yes"].append(f"{rows} rows ({seen}): median {median}, worst {worst}, {near} within 10 %")
        return "; ".join(told[False]), "; ".join(told[True])

    # ---- times of runs

    def small_scenarios(self) -> Tuple[str, str]:
        (runs,) = self.in_turn(lambda: self.run("run", "bench/scenario_matrix.json", "-j", "1"))
        return text([one.processor_s for one in runs], "s"), "-"

    def steps(self, *numbers: int) -> Callable[[], Used]:
        return lambda: Used([str(self.programs / "bench_gpt_step_bench"), *map(str, numbers)])

    @staticmethod
    def step_ms(run: Used) -> float:
        found = re.search(r"step ([\d.]+) ms", run.said)
        if found is None:
            raise SystemExit(f"no time of a step in:\n{run.said}")
        return float(found.group(1))

    def beside_torch(self, *fused: str) -> Tuple[str, str]:
        if not self.torch:
            return "not run: --torch PYTHON", "-"
        ours, theirs = self.in_turn(
            self.steps(1, 8, 12, 4, 256, 4, 128, 8, 512, 0, 1, 0, 0, len(fused)),
            lambda: Used([self.torch, str(ROOT / "bench/torch_cpu_step.py"), *fused]),
        )
        ratios = [self.step_ms(a) / self.step_ms(b) for a, b in zip(ours, theirs)]
        return (
            f"{text(ratios, 'of its time')}; {text([self.step_ms(one) for one in ours], 'ms')}",
            text([self.step_ms(one) for one in theirs], "ms"),
        )

    def simulated_ranks(self, ranks: int) -> Tuple[str, str]:
        """At each stage beside one rank with micro-batches of the same size. Nobody keeps a peer's copy."""
        told, alone = [], []
        for stage in range(4):
            rest = [8 // ranks, 12, 4, 256, 4, 128, 8, 512, stage, 0]
            several, one = self.in_turn(self.steps(ranks, *rest), self.steps(1, *rest))
            ratios = [self.step_ms(a) / self.step_ms(b) for a, b in zip(several, one)]
            told.append(f"stage {stage}: {text(ratios, 'of one rank')}")
            alone += [self.step_ms(each) for each in one]
        return "; ".join(told), text(alone, "ms")

    def all_reduce(self) -> Tuple[str, str]:
        (runs,) = self.in_turn(lambda: Used([str(self.programs / "bench_sim_bench"), "8", "4096"]))
        rates: Dict[str, Figures] = {"8": [], "4096": []}
        for run in runs:
            for ranks, all_of_it in rates.items():
                found = re.search(rf"all-reduce 1 KiB +{ranks} +([\d.]+) M", run.said)
                if found is None:
                    raise SystemExit(f"no rate of {ranks} ranks in:\n{run.said}")
                all_of_it.append(float(found.group(1)))
        ratios = [many / few for few, many in zip(rates["8"], rates["4096"])]
        return f"{text(ratios, 'of the rate at 8')}", f"{text(rates['8'], 'M a second at 8')}"

    def explored(self) -> Tuple[str, str]:
        with tempfile.TemporaryDirectory() as folder:
            report = f"{folder}/explored.json"
            rates = []
            for _ in range(self.turns):
                run = self.run("explore", "scenarios/nccl_timeout.json", "--budget", "15s", "--report", report, fails=True)
                told = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
                rates.append(told["cases"] / run.processor_s)
        return text(rates, "cases a second and core"), "-"

    def rows(self) -> List[Tuple[str, str, Callable[[], Tuple[str, str]]]]:
        return [
            ("Llama 3 405B, 16,384 ranks, one step (stage 0)", "10 s, 1 GiB", self.llama),
            ("a tiny model on 16,384 ranks, stage 1", "5 s", lambda: self.tiny(1)),
            ("the same, stage 3", "5 s", lambda: self.tiny(3)),
            ("100,000 ranks, start to end (stage 0)", "60 s", self.hundred_thousand),
            ("campaigns of 10,000 hours x 16,384 GPUs", "300 s", self.campaign),
            ("collectives from 64 MiB", "10 %, median 5 %", lambda: self.errors("collectives from 64 MiB")),
            ("collectives of 4 to 64 MiB", "20 %", lambda: self.errors("collectives of 4 to 64 MiB")),
            ("collectives below 4 MiB", "a factor of 2", lambda: self.errors("collectives below 4 MiB")),
            ("memory that torch has allocated", "10 %", lambda: self.errors("allocated")),
            ("memory that torch has reserved", "10 %", lambda: self.errors("reserved")),
            ("steps", "10 %, median 5 %", lambda: self.errors("steps")),
            ("1,140 small scenarios, processor", "17 s", self.small_scenarios),
            ("a step of the small GPT beside PyTorch's", "0.70", self.beside_torch),
            ("the same, both with fused attention", "0.65", lambda: self.beside_torch("fused")),
            ("4 simulated ranks", "1.05", lambda: self.simulated_ranks(4)),
            ("8 simulated ranks", "1.05", lambda: self.simulated_ranks(8)),
            ("all-reduce at 4,096 ranks", "0.67", self.all_reduce),
            ("`explore` of `nccl_timeout`", "50 a second and core", self.explored),
        ]


def main() -> None:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("build", type=pathlib.Path)
    words.add_argument("--torch", default="", metavar="PYTHON")
    words.add_argument("--turns", type=int, default=3)
    words.add_argument("--only", default="", metavar="WORD", help="rows with this word")
    given = words.parse_args()
    goals = Goals(given.build.resolve(), given.torch, given.turns)
    print(f"load {os.getloadavg()[0]:.1f}, {given.turns} turns\n\n| what | goal | measured | beside it |\n|---|---|---|---|")
    for what, goal, measure in goals.rows():
        if given.only in what:
            measured, beside = measure()
            print(f"| {what} | {goal} | {measured} | {beside} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
