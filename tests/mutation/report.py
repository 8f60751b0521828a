#!/usr/bin/env python3
"""Prints what became of the mutants: counts that add up, by kind and by file, and each survivor with its reason.

    tests/mutation/report.py [--results tests/mutation/results.jsonl] [--all]

A survivor is a mutant that neither the fast sweeps nor the unit tests turn red. reasons.json says of each that was read
why: {"path", "function", "was", "becomes"} name it, "class" is one of CLASSES. Exit status 1: a survivor has no reason yet.
"""
import argparse
import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
VERDICTS = ("red in a sweep", "red in a unit", "green", "unreached")
CLASSES = {
    "equivalent": "no input tells the two programs apart",
    "time": "virtual time, an estimate or a cost alone; nothing holds it to a value",
    "text": "what is said of a run, not what it computes",
    "check": "became a check",
    "gap": "nothing sees it yet",
}


def name_of(mutant: dict) -> tuple:
    return tuple(mutant[k] for k in ("path", "line", "kind", "was"))


def row(mutant: dict) -> str:
    was = " ".join(mutant["was"].split())[:60].replace("|", "\\|")
    becomes = (" ".join(mutant["becomes"].split())[:60] or "(left out)").replace("|", "\\|")
    return f"| `{mutant['path']}:{mutant['line']}` | {mutant['kind']} | `{was}` | `{becomes}` |"


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--results", type=pathlib.Path, default=HERE / "results.jsonl")
    words.add_argument("--all", action="store_true", help="the survivors that have a reason, too")
    given = words.parse_args()
    results = [json.loads(line) for line in given.results.read_text().splitlines()]
    kept = HERE / "reasons.json"
    reasons = {name_of(r): r for r in json.loads(kept.read_text())} if kept.exists() else {}

    by_kind = collections.defaultdict(collections.Counter)
    for mutant in results:
        by_kind[mutant["kind"]][mutant["verdict"]] += 1
    print("| edit | " + " | ".join(VERDICTS) + " | all |")
    print("|---" * (len(VERDICTS) + 2) + "|")
    total = collections.Counter()
    for kind, counts in sorted(by_kind.items()):
        total += counts
        print(f"| {kind} | " + " | ".join(str(counts[v]) for v in VERDICTS) + f" | {sum(counts.values())} |")
    print("| all | " + " | ".join(str(total[v]) for v in VERDICTS) + f" | {sum(total.values())} |")

    survivors = [m for m in results if m["verdict"] in ("green", "unreached")]
    classes = collections.Counter(reasons[name_of(m)]["class"] for m in survivors if name_of(m) in reasons)
    unread = [m for m in survivors if name_of(m) not in reasons]
    print(f"\n{len(survivors)} survivors of {len(results)}: " +
          ", ".join(f"{classes[c]} {c} ({CLASSES[c]})" for c in CLASSES if classes[c]) +
          (f", {len(unread)} not read yet" if unread else ""))
    for mutant in survivors if given.all else unread:
        reason = reasons.get(name_of(mutant))
        print(row(mutant) + (f" {reason['class']}: {reason['reason']} |" if reason else f" {mutant['verdict']} |"))
    return 1 if unread else 0


if __name__ == "__main__":
    sys.exit(main())
