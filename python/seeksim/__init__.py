"""Run seeksim's scenarios from Python: load one, change it, run it, read what it did.

    import seeksim
    report = seeksim.load("nccl_timeout").with_settings({"deepspeed.zero_optimization.stage": 3}).run()
    assert report.ok, report.sentence

Everything here goes through the program's command line and its JSON report, whose fields docs/report.md lists. No value
is computed in Python. `seeksim.testing` draws scenarios with hypothesis.
"""
from ._program import BadInput, ProgramFailed, program, scenarios, version
from .report import Check, Report
from .scenario import Scenario, load

__all__ = ["BadInput", "Check", "ProgramFailed", "Report", "Scenario", "load", "program", "scenarios", "version"]
