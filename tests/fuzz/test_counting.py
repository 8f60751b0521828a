#!/usr/bin/env python3
"""How executions are counted, and which target comes next."""

import json
import pathlib
import tempfile
import unittest

import away
import slices
import tally


def heard(lines, moments, mode="short"):
    """A slice that heard `lines` at `moments`."""
    one = slices.Slice("log", mode)
    one.began = 0.0
    real = slices.time.monotonic
    try:
        for line, moment in zip(lines, moments):
            slices.time.monotonic = lambda: moment
            one.hear(line)
    finally:
        slices.time.monotonic = real
    one.ended = moments[-1]
    return one


def counted(executions, since, edges=10, **more):
    return {**tally.NOTHING, "executions": executions, "since_new_edge": since, "edges": edges, **more}


class OneSlice(unittest.TestCase):
    def test_what_lay_in_the_corpus_is_no_execution_and_reaches_nothing(self):
        one = heard(["#2\tpulse  cov: 50 ft: 1", "#100\tINITED cov: 70 ft: 1", "#164\tpulse  cov: 70 ft: 1",
                     "#200\tDONE   cov: 70 ft: 1", "stat::number_of_executed_units: 200"], [1, 2, 3, 4, 4])
        self.assertEqual((one.executions, one.reached_at, one.since(None), one.edges), (100, None, 100, 70))

    def test_an_edge_of_its_own_and_not_one_that_came_from_beside(self):
        one = heard(["#100\tINITED cov: 70 ft: 1", "#120\tNEW    cov: 71 ft: 1", "#200\tRELOAD cov: 75 ft: 1",
                     "#210\tNEW    cov: 75 ft: 2", "#300\tDONE   cov: 75 ft: 2"], [1, 2, 3, 4, 5])
        self.assertEqual((one.reached_at, one.since(2), one.since(2.5), one.since(9)), (2, 180, 100, 0))

    def test_without_a_corpus_that_was_read_nothing_was_done(self):
        self.assertEqual(heard(["#16\tpulse  cov: 5 ft: 1"], [1]).executions, 0)


class Counts(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.file = pathlib.Path(self.folder.name) / "counts.json"
        self.addCleanup(self.folder.cleanup)

    def end(self, counts, *ended):
        for one in ended:
            counts.running.setdefault(one.target, []).append(one)
        for one in ended:
            counts.add(one)
        return tally.read(self.file)

    def test_slices_side_by_side_are_quiet_only_after_the_last_new_edge_of_all(self):
        counts = tally.Tally(self.file, began={"log": counted(1000, 900)})
        grows = heard(["#0\tINITED cov: 9", "#50\tNEW    cov: 11", "#80\tDONE cov: 11"], [0, 6, 9])
        quiet = heard(["#0\tINITED cov: 9", "#40\tpulse cov: 9", "#90\tpulse cov: 9", "#100\tDONE cov: 9"],
                      [0, 5, 7, 9])
        one = self.end(counts, quiet, grows)["log"]
        self.assertEqual((one["executions"], one["since_new_edge"], one["edges"]), (1180, 30 + 10, 11))

    def test_without_a_new_edge_quiet_executions_add_up(self):
        counts = tally.Tally(self.file, began={"log": counted(1000, 150, edges=9)})
        one = self.end(counts, heard(["#10\tINITED cov: 9", "#100\tDONE cov: 9"], [0, 9], mode="strict"))["log"]
        self.assertEqual((one["executions"], one["since_new_edge"], one["strict"]), (1090, 240, 90))
        self.assertTrue(tally.is_quiet(one))

    def test_a_target_that_lacks_executions_comes_before_one_that_has_them(self):
        counts = tally.Tally(self.file, began={"log": counted(tally.GOAL, tally.GOAL), "set": counted(5, 5)})
        counts.rates = {"log": 1.0, "set": 1.0}
        counts.turn = len(tally.WISHES) - 1
        self.assertEqual(counts.next(["log", "set"], 60), "set")

    def test_a_target_without_any_slice_comes_first(self):
        counts = tally.Tally(self.file, began={})
        counts.rates = {"log": 5.0}
        self.assertEqual(counts.next(["log", "set"], 60), "set")


class Page(unittest.TestCase):
    def test_says_what_the_counts_say(self):
        top = pathlib.Path(__file__).resolve().parents[2]
        targets = sorted(folder.name for folder in (top / "tests/fuzz/corpus").iterdir())
        rows = tally.table(tally.read(top / "tests/fuzz/counts.json"), targets)
        self.assertIn(f"\n\n{rows}\n", (top / "docs/fuzzing.md").read_text(), "tests/fuzz/run.py --report mends it")

    def test_is_mended(self):
        with tempfile.NamedTemporaryFile("w+", suffix=".md") as page:
            page.write(f"before\n\n{tally.HEAD}| old |\n\nafter\n\nmore\n")
            page.flush()
            rows = tally.table({"log": counted(5, 1)}, ["log"])
            tally.mend_page(pathlib.Path(page.name), rows)
            self.assertEqual(pathlib.Path(page.name).read_text(), f"before\n\n{rows}\nafter\n\nmore\n")


class OfTwoMachines(unittest.TestCase):
    START = {"log": counted(1000, 500)}

    def joined(self, here, ended):
        return tally.joined({"log": here}, self.START, {"log": ended})["log"]

    def test_what_both_did_adds_up(self):
        one = self.joined(counted(1100, 600, found=1), counted(3000, 2500, found=2, strict=7))
        self.assertEqual((one["executions"], one["since_new_edge"], one["found"], one["strict"]), (3100, 2600, 3, 7))

    def test_nothing_is_quieter_than_a_side_that_grew(self):
        self.assertEqual(self.joined(counted(1100, 600), counted(3000, 40))["since_new_edge"], 40)
        self.assertEqual(self.joined(counted(1100, 30), counted(3000, 2500))["since_new_edge"], 30)
        self.assertEqual(self.joined(counted(1100, 30), counted(3000, 40))["since_new_edge"], 30)

    def test_a_result_comes_home_with_its_inputs_and_only_those(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            work, into = top / "work", top / "into"
            for path in ("merged/log/a", "found/log-1"):
                (work / path).parent.mkdir(parents=True)
                (work / path).write_text(path)
            into.mkdir()
            counts = tally.Tally(into / "counts.json", began=self.START)
            counts.now = {"log": counted(1500, 1000)}
            away.pack_home(into, counts, work)
            self.assertFalse(work.exists())
            tally.write(top / "here.json", {"log": counted(2000, 700)})
            self.assertEqual([f.name for f in away.take_home(into / away.HOME, top / "here.json", top / "build")],
                             ["log-1"])
            self.assertEqual((top / "build/corpus/log/a").read_text(), "merged/log/a")
            self.assertEqual(json.loads((top / "here.json").read_text())["log"]["executions"], 2500)

    def test_what_was_kept_is_where_the_next_session_begins(self):
        with tempfile.TemporaryDirectory() as folder:
            top = pathlib.Path(folder)
            large = "x" * (away.KEPT_INPUT_BYTES_MAX + 1)
            for path, text in (("log/a", "first"), ("log/b", large), ("set/a", "second")):
                (top / "merged" / path).parent.mkdir(parents=True, exist_ok=True)
                (top / "merged" / path).write_text(text)
            away.keep(top / "grown.tar.xz", top)
            (top / "corpus/set").mkdir(parents=True)
            (top / "corpus/set/own").write_text("grown here")
            away.take_kept(top / "grown.tar.xz", top / "corpus")
            self.assertEqual(sorted(str(f.relative_to(top / "corpus")) for f in (top / "corpus").glob("*/*")),
                             ["log/a", "set/own"])
            self.assertEqual((top / "corpus/log/a").read_text(), "first")
            away.take_kept(top / "none.tar.xz", top / "corpus")


if __name__ == "__main__":
    unittest.main()
