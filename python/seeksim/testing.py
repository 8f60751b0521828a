"""Properties over scenarios, drawn and shrunk by hypothesis.

    from hypothesis import given, settings, strategies as st
    from seeksim.testing import assert_passes, scenarios

    @settings(deadline=None, max_examples=50)
    @given(scenarios("baseline", {"deepspeed.zero_optimization.stage": st.integers(0, 3),
                                  "world.ranks_per_node": st.sampled_from([1, 2, 4])}))
    def test_the_layout_changes_no_bit(scenario):
        assert_passes(scenario)
"""
import os
from typing import Any, Mapping, Union

from hypothesis import reject, strategies

from ._program import BadInput
from .report import Report
from .scenario import Scenario, load


def scenarios(base: Union[str, "os.PathLike[str]", Mapping[str, Any], Scenario],
              settings: "Mapping[str, strategies.SearchStrategy[Any]]") -> "strategies.SearchStrategy[Scenario]":
    """Draws the scenario `base` with a value of its strategy for each key of `settings`."""
    start = base if isinstance(base, Scenario) else load(base)
    return strategies.fixed_dictionaries(dict(settings)).map(start.with_settings)


def assert_passes(scenario: Scenario, *, refused_is_fine: bool = False, **run: Any) -> Report:
    """Runs the scenario and raises AssertionError with each red check and the command that shows it.

    refused_is_fine: settings that do not go together are drawn sometimes. hypothesis then takes another example.
    run: keywords of Scenario.run.
    """
    try:
        report = scenario.run(**run)
    except BadInput:
        if refused_is_fine:
            reject()
        raise
    if not report.ok:
        red = "\n".join(f"  {check.name}: {check.detail}" for check in report.failed)
        raise AssertionError(f"{report.sentence}\n{red}\n  {report.command}")
    return report
