"""What was done so far, what the goal still lacks, and which target is next."""

import datetime
import json

# The goal: so many executions of each target and of all, and none of the last fifth reaches an edge for the first time.
GOAL, GOAL_OF_ALL, QUIET_SHARE = 10**6, 10**8, 1 / 5
NOTHING = {"executions": 0, "since_new_edge": 0, "edges": 0, "found": 0, "strict": 0}
# Whose wish the next slice fulfils: a target without its share, the sum of all, or a target that still grows.
WISHES = ("share", "sum", "share", "sum", "share", "growth")


def read(file):
    counts = json.loads(file.read_text()) if file.exists() else {}
    return {target: {**NOTHING, **one} for target, one in counts.items()}


def write(file, counts):
    file.write_text(json.dumps(counts, indent=2, sort_keys=True) + "\n")


def today():
    return datetime.datetime.now(datetime.timezone.utc).date().isoformat()


def is_quiet(one):
    return one["since_new_edge"] >= QUIET_SHARE * one["executions"] > 0


class Tally:
    """The counts of the file `file`, to which slices are added. Slices of one target may run side by side."""

    def __init__(self, file, began=None):
        self.file = file
        self.began = began if began is not None else read(file)
        self.now = {target: dict(one) for target, one in self.began.items()}
        self.slices = {}  # target: those that have ended
        self.running = {}  # target: those that have not
        self.rates = {}  # target: executions a second
        self.turn = 0

    def add(self, slice_):
        target, began = slice_.target, self.began.get(slice_.target, NOTHING)
        self.running[target].remove(slice_)
        done = self.slices.setdefault(target, [])
        done.append(slice_)
        self.rates[target] = max(1, slice_.executions) / (slice_.ended - slice_.began)
        reached = [s.reached_at for s in done + self.running[target] if s.reached_at is not None]
        since = sum(s.since(max(reached, default=None)) for s in done)
        self.now[target] = {
            "executions": began["executions"] + sum(s.executions for s in done),
            "strict": began["strict"] + sum(s.executions for s in done if s.mode == "strict"),
            "since_new_edge": since if reached else began["since_new_edge"] + since,
            "edges": max(s.edges for s in done), "found": began["found"] + sum(len(s.found) for s in done),
            "date": today()}
        write(self.file, self.now)

    def expected(self, target, seconds):
        """Executions that a target will have when the slices that run now have ended."""
        running = len(self.running.get(target, ()))
        return self.now.get(target, NOTHING)["executions"] + running * seconds * self.rates.get(target, 0)

    def next(self, free, seconds):
        """The target that needs the next slice most."""
        beside = {t: len(self.running.get(t, ())) for t in free}
        unknown = [t for t in free if t not in self.rates and beside[t] == 0]
        if unknown:
            return unknown[0]
        expected = {t: self.expected(t, seconds) for t in free}
        lack = [t for t in free if expected[t] < GOAL]
        grow = [t for t in free if t not in lack and not is_quiet(self.now.get(t, NOTHING))]
        wishes = {}
        if lack:
            wishes["share"] = min(lack, key=lambda t: expected[t])
        if sum(self.expected(t, seconds) for t in {*self.now, *free}) < GOAL_OF_ALL:
            wishes["sum"] = max(free, key=lambda t: self.rates.get(t, 0) / (1 + beside[t]))
        if grow:
            wishes["growth"] = min(grow, key=lambda t: (beside[t], expected[t]))
        self.turn += 1
        for offset in range(len(WISHES)):
            wish = WISHES[(self.turn + offset) % len(WISHES)]
            if wish in wishes:
                return wishes[wish]
        return min(free, key=lambda t: (beside[t], expected[t]))


HEAD = "| target | executions | of them strict | edges | since the last new edge | found |\n|---|---|---|---|---|---|\n"


def table(counts, targets):
    """The counts, whose last row adds up."""
    rows = HEAD
    for target in targets:
        one = counts.get(target, NOTHING)
        share = 100 * one["since_new_edge"] / max(1, one["executions"])
        rows += (f"| `{target}` | {one['executions']:,} | {one['strict']:,} | {one['edges']:,} | {share:.0f} % "
                 f"| {one['found']} |\n")
    total, strict, found = (sum(one[key] for one in counts.values()) for key in ("executions", "strict", "found"))
    return rows + f"| all | {total:,} | {strict:,} | | | {found} |\n"


def lacks(counts, targets):
    """What the goal still lacks, in a sentence."""
    total = sum(one["executions"] for one in counts.values())
    enough = sum(counts.get(t, NOTHING)["executions"] >= GOAL for t in targets)
    quiet = sum(is_quiet(counts.get(t, NOTHING)) for t in targets)
    return (f"{len(targets)} targets: {enough} have {GOAL:,} executions, and {quiet} reached no new edge in their "
            f"last fifth. All have {100 * total / GOAL_OF_ALL:.1f} % of {GOAL_OF_ALL:,}.")


def mend_page(page, rows):
    """Puts the table into docs/fuzzing.md, where tests look for it."""
    text = page.read_text()
    begin = text.index(HEAD)
    page.write_text(text[:begin] + rows + text[text.index("\n\n", begin) + 1:])


def joined(here, began, away):
    """The counts `here` and what another machine did, which began with `began` and ended with `away`.

    Neither side saw what the other one reached, so that after growth on a side, no more is quiet than that side says.
    """
    counts = {target: dict(one) for target, one in here.items()}
    for target, ended in away.items():
        start, mine = began.get(target, NOTHING), here.get(target, NOTHING)
        grown = [one["since_new_edge"] for one in (ended, mine)
                 if one["since_new_edge"] < start["since_new_edge"] + one["executions"] - start["executions"]]
        more = {key: ended[key] - start[key] for key in ("executions", "strict", "found")}
        since = min(grown) if grown else mine["since_new_edge"] + more["executions"]
        counts[target] = {**mine, **{key: mine[key] + more[key] for key in more}, "since_new_edge": since,
                          "edges": max(mine["edges"], ended["edges"]), "date": today()}
    return counts
