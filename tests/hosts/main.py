#!/usr/bin/env python3
"""./seeksim test hosts: several hosts on one machine, every way to start a job on them, and real faults.

    main.py PROGRAM [--only TEXT] [--list] [--table]

Exit status: 0 if every case that could run went as expected, 1 if one did not, 5 if none could run.
"""

import argparse
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import packages
from cases import CASES, WAITS
from launchers import PATIENCE_S
from namespaces import Network, inside_namespaces

NOTHING_RAN = 5
CHECKOUT = pathlib.Path(__file__).resolve().parents[2]


class Job:
    """What a launcher is asked to run."""

    def __init__(self, case, network):
        self.scenario = str(CHECKOUT / "tests/hosts/job.json")
        self.out, self.env_of = network.shared / "out", {}
        case.fault.before(self, network)
        self.report = network.shared / "report.json"
        self.more = [*case.more, "--report", str(self.report)]
        self.launched = ["--out", str(self.out), "--set", 'recovery.policy="restart_from_checkpoint"',
                         "--set", 'checkpoint={"path":"checkpoints","every_steps":3}']
        if "--set" in case.more and "checkpoint" in " ".join(case.more):
            self.more += ["--out", str(self.out)]

    def env(self, host):
        return self.env_of.get(host.name, {})


def say(text):
    print(text, flush=True)


def digest_in(report):
    """What the weights of a run that passed come to; empty: none did."""
    told = json.loads(report.read_text()) if report.exists() else {}
    return told["params_digest"] if told.get("verdict") == "pass" else ""


class Runner:
    def __init__(self, program, lacking):
        self.program, self.lacking = program, lacking
        self.goldens = {}  # by launcher's own golden and ranks; of seeksim's training, one
        self.undisturbed = {}  # by launcher and hosts: what one host's link carried
        self.rows, self.bad, self.ran = [], 0, 0

    def simulated(self):
        """The digest that every run has to end with, of the simulator's one."""
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            done = subprocess.run([str(self.program), "run", "tests/hosts/job.json", "--report", str(report)],
                                  cwd=CHECKOUT, text=True, capture_output=True)
            digest = digest_in(report)
        if not digest:
            raise RuntimeError(f"the simulated run fails:\n{done.stdout}{done.stderr}")
        return digest

    def golden(self, case):
        """What a run of this case has to end with."""
        own = case.launcher.golden
        key = (own.__func__, case.per_host * case.hosts) if own else None
        if key not in self.goldens:
            self.goldens[key] = own(self.program, key[1]) if own else self.simulated()
        return self.goldens[key]

    def skip(self, case, why):
        say(f"skipped  {case.name}: {why}")
        self.rows.append((case, f"skipped: {why}", ""))

    def run(self, case, network):
        lacking = case.packages & self.lacking
        why = f"no package {' '.join(sorted(lacking))}" if lacking else case.launcher.missing() or case.fault.missing()
        if why:
            return self.skip(case, why)
        golden = self.golden(case) if case.golden else ""
        launcher = case.launcher(network, self.program, case.per_host)
        victim = network.hosts[case.victim]
        before = victim.bytes_crossed()
        job = Job(case, network)
        began = time.monotonic()
        struck = case.fault.name == "none" or case.fault.from_start
        if struck:
            case.fault.strike(victim)
        running = launcher.start(job)
        try:
            struck = struck or self.strike(case, running, victim, before)
            if case.status == WAITS:
                running.await_ranks()
                statuses = running.statuses(5, 5)
            else:
                statuses = running.statuses(case.grace_s)
            crossed = victim.bytes_crossed() - before
            seen = case.fault.seen(victim) if struck else ""
            digest = case.launcher.digest(job, running) if case.launcher.digest else digest_in(job.report)
            problems = self.judge(case, golden, digest, statuses, running, crossed, seen)
        finally:
            running.end()
            if struck:
                case.fault.after(victim)
            network.clear()
        if case.fault.name == "none":
            self.undisturbed[case.launcher, case.hosts] = crossed
        self.ran += 1
        self.bad += bool(problems)
        told = f"status {statuses[0]}, {crossed / 1e6:.1f} MB crossed, {time.monotonic() - began:.1f} s, {seen}"
        say(f"{'FAILED' if problems else 'ok':8} {case.name}: {told}")
        for problem in problems:
            say(f"         {problem}")
        if problems:
            for number in range(len(running.started)):
                say(f"---- process {number}, status {statuses[number]}:\n{running.said(number)[-4000:]}")
        self.rows.append((case, "FAILED" if problems else case.outcome(statuses), seen))

    def strike(self, case, running, victim, before):
        """Strikes when a fifth of the traffic of an undisturbed run has crossed. True: it was struck."""
        moment = self.undisturbed.get((case.launcher, case.hosts), 20e6) / 5
        until = time.monotonic() + PATIENCE_S
        while victim.bytes_crossed() - before < moment:
            if running.ended() or time.monotonic() > until:
                return False
            time.sleep(0.005)
        case.fault.strike(victim)
        if case.fault.heals_after_s is not None:
            time.sleep(case.fault.heals_after_s)
            case.fault.heal(victim)
        return True

    def judge(self, case, golden, digest, statuses, running, crossed, seen):
        problems = []
        text = " ".join(running.all_said().split())  # as it was before lines were broken
        wanted = None if case.status == WAITS else case.status
        if case.status is not None and statuses[0] != wanted:
            problems.append(f"the job's exit status is {statuses[0]}, not {case.status}")
        if case.status is None and statuses[0] in (0, None):
            problems.append(f"the job's exit status is {statuses[0]}")
        if case.golden and digest != golden:
            problems.append(f"its digest is '{digest}', the golden's is {golden}")
        problems += [f"it does not say '{words}'" for words in case.says if words not in text]
        if not seen:
            problems.append("nothing shows that the fault acted")
        if crossed < 1e6:
            problems.append(f"only {crossed} bytes crossed the link of the last host")
        if case.victims:
            theirs = statuses[case.victim]
            if theirs not in case.victims:
                problems.append(f"the victim's exit status is {theirs}, not one of {case.victims}")
            struck = case.victim % case.hosts
            others = [status for number, status in enumerate(statuses) if number // case.per_host != struck]
            if case.launcher.status_a_rank and set(others) != {case.status}:
                problems.append(f"the exit statuses of those that were left are {others}")
        return problems

    def table(self):
        today = datetime.date.today().isoformat()
        say("\n| launcher | hosts | fault | seen by | what came of it | date |\n|---|---|---|---|---|---|")
        for case, how, seen in self.rows:
            say(f"| {case.launcher.name} | {case.hosts} | {case.fault.name} | {seen} | {how} | {today} |")


def run_all(options, chosen, lacking):
    os.chdir(CHECKOUT)
    runner = Runner(options.program.resolve(), lacking)
    for count in sorted({case.hosts for case in chosen}):
        network = Network(count, CHECKOUT)
        for case in chosen:
            if case.hosts == count:
                runner.run(case, network)
        network.end()
    if options.table:
        runner.table()
    say(f"{runner.ran - runner.bad} passed, {runner.bad} failed, {len(chosen) - runner.ran} skipped")
    if runner.ran == 0:
        return NOTHING_RAN
    return 1 if runner.bad else 0


def main():
    parser = argparse.ArgumentParser(prog="seeksim test hosts", description=__doc__.split("\n")[0])
    parser.add_argument("program", type=pathlib.Path, help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", metavar="TEXT", help="cases whose name holds TEXT")
    parser.add_argument("--but", default=None, metavar="TEXT", help="not those whose name holds TEXT")
    parser.add_argument("--list", action="store_true", help="print the cases, run none")
    parser.add_argument("--table", action="store_true", help="print a Markdown table of the results")
    options = parser.parse_args()
    chosen = [case for case in CASES
              if options.only in case.name and (options.but is None or options.but not in case.name)]
    if options.list:
        print("\n".join(case.name for case in chosen))
        return 0
    why, lacking = packages.obtain(chosen)
    if why:
        print(f"seeksim: the hosts tests are skipped: {why}", file=sys.stderr)
        return NOTHING_RAN
    return inside_namespaces(lambda: run_all(options, chosen, lacking))


if __name__ == "__main__":
    sys.exit(main())
