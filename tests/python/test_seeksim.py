"""The Python package against the program: SEEKSIM_PROGRAM names it. Runs with unittest alone; hypothesis and pandas where
they are installed."""
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import tempfile
import unittest

import seeksim

TINY = {
    "name": "tiny",
    "model": {"layers": 1, "width": 8, "heads": 2, "context": 4, "vocab": 16},
    "data": {"synthetic": True},
    "world": {"nodes": 1, "ranks_per_node": 2},
    "deepspeed": {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2},
    "steps": 3,
    "checks": ["golden:bitwise"],
}
PLANTED = {"bug": "drifting_replica"}


def has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Scenarios(unittest.TestCase):
    def test_a_dict_runs_and_reports(self):
        report = seeksim.load(TINY).run()
        self.assertTrue(report.ok, report.text)
        self.assertEqual(len(report.losses), 3)
        self.assertTrue(all(math.isfinite(loss) for loss in report.losses))
        self.assertIn("golden:bitwise", [check.name for check in report.checks])
        self.assertEqual([step["step"] for step in report.steps()], [0, 1, 2])
        self.assertEqual(report.steps()[1]["loss"], report.losses[1])
        self.assertTrue(report.sentence.startswith("PASS tiny"), report.sentence)

    def test_settings_reach_the_run_and_leave_the_scenario_alone(self):
        tiny = seeksim.load(TINY)
        longer = tiny.with_settings({"steps": 5, "deepspeed.zero_optimization.stage": 3})
        self.assertEqual(len(longer.run().losses), 5)
        self.assertEqual(tiny.settings, ())
        self.assertEqual(tiny.data, TINY)
        self.assertEqual(longer.run(seed=7).data["seed"], 7)

    def test_a_planted_bug_is_a_red_report(self):
        report = seeksim.load(TINY).with_settings(PLANTED).run()
        self.assertFalse(report.ok)
        self.assertEqual(report.exit_code, 1)
        self.assertIn("golden:bitwise", [check.name for check in report.failed])

    def test_the_command_makes_the_same_run(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "it's tiny.json")
            pathlib.Path(path).write_text(json.dumps(TINY), encoding="utf-8")
            report = seeksim.load(path).with_settings({"steps": 2, "world": {"nodes": 2, "ranks_per_node": 1}}).run(seed=5)
            self.assertIn("--seed 5", report.command)
            command = report.command.replace("seeksim", f"'{seeksim.program()}'", 1)
            again = subprocess.run(["sh", "-c", command + " --report /dev/stdout"], capture_output=True, text=True, check=True)
            self.assertIn(report.data["params_digest"], again.stdout)

    def test_what_is_refused_is_bad_input_with_every_problem(self):
        with self.assertRaises(seeksim.BadInput) as refused:
            seeksim.load(TINY).with_settings({"steps": -1, "world.nodes": "three"}).run()
        text = "\n".join(refused.exception.problems)
        self.assertIn("steps", text)
        self.assertIn("world.nodes", text)
        with self.assertRaises(seeksim.BadInput):
            seeksim.load("no_such_scenario").run()

    def test_scenarios_of_the_program_are_found_by_name(self):
        names = seeksim.scenarios()
        self.assertIn("nccl_timeout", names)
        self.assertTrue(os.path.exists(names["nccl_timeout"]))
        self.assertEqual(seeksim.load("nccl_timeout").data["name"], "nccl_timeout")

    def test_a_sweep_has_rows(self):
        report = seeksim.load(TINY).with_sweep({"deepspeed.zero_optimization.stage": [0, 1, 2, 3]}).run()
        self.assertTrue(report.ok, report.text)
        self.assertEqual([row["settings"]["deepspeed.zero_optimization.stage"] for row in report.rows], [0, 1, 2, 3])
        self.assertEqual(len({row["params_digest"] for row in report.rows}), 1)

    @unittest.skipUnless(has("pandas"), "pandas is not installed")
    def test_rows_and_steps_are_tables(self):
        table = seeksim.load(TINY).with_sweep({"steps": [1, 2]}).run().table()
        self.assertEqual(list(table["steps"]), [1, 2])
        self.assertEqual(list(seeksim.load(TINY).run().table()["step"]), [0, 1, 2])

    def test_a_notebook_shows_the_page_or_the_text(self):
        self.assertIn("data:text/html;base64,", seeksim.load(TINY).run(html=True)._repr_html_())
        self.assertIn("PASS tiny", seeksim.load(TINY).run()._repr_html_())

    def test_without_a_program_it_says_so(self):
        before = os.environ["SEEKSIM_PROGRAM"]
        os.environ["SEEKSIM_PROGRAM"] = "/nowhere/seeksim"
        try:
            with self.assertRaises(seeksim.ProgramFailed):
                seeksim.load(TINY).run()
        finally:
            os.environ["SEEKSIM_PROGRAM"] = before


@unittest.skipUnless(has("hypothesis"), "hypothesis is not installed")
class Properties(unittest.TestCase):
    def test_a_property_holds_and_a_planted_bug_breaks_it(self):
        from hypothesis import given, settings, strategies
        from seeksim.testing import assert_passes, scenarios

        axes = {"deepspeed.zero_optimization.stage": strategies.integers(0, 3), "training_seed": strategies.integers(1, 9)}
        plain = settings(deadline=None, max_examples=6, database=None, derandomize=True)

        @plain
        @given(scenarios(TINY, axes))
        def holds(scenario):
            assert_passes(scenario)

        @plain
        @given(scenarios(TINY, {**axes, "bug": strategies.sampled_from(["none", "drifting_replica"])}))
        def breaks(scenario):
            assert_passes(scenario, refused_is_fine=True)

        holds()
        with self.assertRaises(AssertionError) as red:
            breaks()
        self.assertIn("golden:bitwise", str(red.exception))


if __name__ == "__main__":
    unittest.main()
