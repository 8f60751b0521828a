#!/usr/bin/env python3
"""Prints what became of the mutants: counts that add up, by kind of edit, and survivors that nobody has read yet.

    tests/mutation/report.py [--results tests/mutation/results.jsonl] [--all] [--unread-max PERCENT]

A survivor is a mutant that stays green in every fast sweep and unit test that comes to it, or to which none comes.
reasons.json says why of each that was read: path, function, kind, was and becomes name it; class is one of CLASSES.

Exit status: 1 if more survivors than --unread-max allows (none by default), as a share of all, have no reason yet.
"""
import argparse
import collections
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
VERDICTS = ("red in a sweep", "red in a unit test", "green", "unreached")
SURVIVORS = ("green", "unreached")
CLASSES = {
    "equivalent": "no run tells the two programs apart",
    "time": "a time, a cost or memory alone changes, and nothing holds it to a value",
    "text": "what is said of a run changes, not what it does",
    "gap": "nothing sees it yet",
}
STATUS = {"hangs": "a hang", 1: "a check or a test", 2: "a refusal", 3: "no progress", 4: "a broken invariant"}


def name_of(mutant: dict) -> tuple:
    return tuple(mutant[k] for k in ("path", "function", "kind", "was", "becomes"))


def short(text: str) -> str:
    return " ".join(text.split())[:70].replace("|", "\\|") or "(left out)"


def row(mutant: dict) -> str:
    place = f"| {mutant['mutant']} | `{mutant['path']}:{mutant['line']}` "
    return place + f"| `{short(mutant['was'])}` | `{short(mutant['becomes'])}` |"


def print_counts(head: dict, results: list):
    """The table whose last row and column add up."""
    by_kind = collections.defaultdict(collections.Counter)
    for mutant in results:
        by_kind[mutant["kind"]][mutant["verdict"]] += 1
    print("| edit | " + " | ".join(VERDICTS) + " | all |")
    print("|---" * (len(VERDICTS) + 2) + "|")
    total = collections.Counter()
    for kind, counts in sorted(by_kind.items()):
        total += counts
        print(f"| {kind} | " + " | ".join(str(counts[v]) for v in VERDICTS) + f" | {counts.total()} |")
    print("| all | " + " | ".join(str(total[v]) for v in VERDICTS) + f" | {total.total()} |")
    left = head["drawn"] - head["do_not_compile"] - total.total()
    print(f"\nCommit {head['commit']}, seed {head['seed']}: of {head['sites']} sites {head['drawn']} were drawn; "
          f"{head['do_not_compile']} do not compile, {total.total()} were judged, {left} were not.")
    red = [m for m in results if m["verdict"] not in SURVIVORS]
    by_status = collections.Counter(STATUS.get(m["status"], "a crash") for m in red)
    print("Red by " + ", by ".join(f"{status}: {n}" for status, n in by_status.most_common()) + ".")
    print(f"{sum(m.get('again', False) for m in red)} of the red ones survived at first, and became a check.")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--results", type=pathlib.Path, default=HERE / "results.jsonl")
    words.add_argument("--all", action="store_true", help="the survivors that have a reason, too")
    words.add_argument("--unread-max", type=float, default=0, metavar="PERCENT")
    given = words.parse_args()
    head, *results = [json.loads(line) for line in given.results.read_text().splitlines()]
    kept = HERE / "reasons.json"
    reasons = {name_of(r): r for r in json.loads(kept.read_text())} if kept.exists() else {}
    print_counts(head, results)

    survivors = [m for m in results if m["verdict"] in SURVIVORS]
    classes = collections.Counter(reasons[name_of(m)]["class"] for m in survivors if name_of(m) in reasons)
    unread = [m for m in survivors if name_of(m) not in reasons]
    shares = [f"{classes[c]} {c} ({CLASSES[c]})" for c in CLASSES if classes[c]]
    shares += [f"{len(unread)} not read yet"] if unread else []
    print(f"{len(survivors)} survivors of {len(results)}: {', '.join(shares)}\n")
    for mutant in survivors if given.all else unread:
        reason = reasons.get(name_of(mutant))
        print(row(mutant) + (f" {reason['class']}: {reason['reason']} |" if reason else f" {mutant['verdict']} |"))
    return 1 if 100 * len(unread) > given.unread_max * len(results) else 0


if __name__ == "__main__":
    sys.exit(main())
