"""Scenarios: a file, or a dict, with settings changed."""
import copy
import dataclasses
import json
import os
import pathlib
import shlex
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from . import _program
from .report import Report


def _seed(seed: Optional[int]) -> List[str]:
    return [] if seed is None else ["--seed", str(seed)]


@dataclasses.dataclass(frozen=True)
class Scenario:
    """One scenario. It never changes: `with_settings` and `with_sweep` return another one.

    source: path of the file, or the name of a scenario that comes with seeksim, or the scenario itself as a dict.
    settings: (key, value) in the order in which they are made, as `--set key=value` of the program.
    """
    source: Union[str, Dict[str, Any]]
    settings: Tuple[Tuple[str, Any], ...] = ()

    def with_settings(self, settings: Mapping[str, Any]) -> "Scenario":
        """The scenario with other values, by key: {"world.nodes": 2, "faults.0.rank": 5}. Values are JSON's types."""
        return dataclasses.replace(self, settings=self.settings + tuple(settings.items()))

    def with_sweep(self, *axes: Mapping[str, Sequence[Any]]) -> "Scenario":
        """The scenario as a sweep: a run for each combination of the values of each of these sets of axes."""
        return self.with_settings({"sweep": [{key: list(values) for key, values in axis.items()} for axis in axes]})

    @property
    def data(self) -> Dict[str, Any]:
        """What the file says, without `settings`, as a new dict. Raises BadInput where it cannot be read."""
        if isinstance(self.source, dict):
            return copy.deepcopy(self.source)
        path = pathlib.Path(self.source)
        if not path.exists():
            path = pathlib.Path(_program.scenarios().get(self.source, self.source))
        try:
            data: Dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise _program.BadInput([f"{path}: {error}"]) from error
        return data

    def arguments(self) -> Sequence[str]:
        """`--set` for each of `settings`."""
        return [word for key, value in self.settings for word in ("--set", f"{key}={json.dumps(value)}")]

    def command(self, seed: Optional[int] = None) -> str:
        """The same run on a command line. A scenario that is a dict stands there as SCENARIO.json."""
        file = self.source if isinstance(self.source, str) else "SCENARIO.json"
        return shlex.join(["seeksim", "run", file, *self.arguments(), *_seed(seed)])

    def run(self, *, seed: Optional[int] = None, options: Sequence[str] = (), html: bool = False) -> Report:
        """Runs it and returns what it did. A red run is a Report whose `ok` is False.

        seed: the world's seed, if not the scenario's. options: further options of `seeksim run`, as ["--explain"].
        html: also make the page, for `Report.html` and for notebooks.
        Raises BadInput where the program refuses the scenario, ProgramFailed where it ends without a report.
        """
        with tempfile.TemporaryDirectory(prefix="seeksim-") as folder:
            report, page = os.path.join(folder, "report.json"), os.path.join(folder, "page.html")
            arguments = ["run", self._file(folder), *self.arguments(), "--report", report]
            arguments += _seed(seed)
            arguments += ["--html", page] if html else []
            done = _program.call([*arguments, *options])
            _program.refuse_bad_input(done)
            try:
                data = json.loads(pathlib.Path(report).read_text(encoding="utf-8"))
            except (OSError, ValueError) as error:
                raise _program.ProgramFailed(f"seeksim ended with status {done.returncode} and without a report:\n"
                                             f"{done.stdout}{done.stderr}") from error
            shown = pathlib.Path(page).read_text(encoding="utf-8") if html and os.path.exists(page) else None
            return Report(data=data, text=done.stdout, command=self.command(seed), html=shown)

    def _file(self, folder: str) -> str:
        if isinstance(self.source, str):
            return self.source
        path = os.path.join(folder, "scenario.json")
        pathlib.Path(path).write_text(json.dumps(self.source), encoding="utf-8")
        return path


def load(source: Union[str, "os.PathLike[str]", Mapping[str, Any]]) -> Scenario:
    """A scenario by its path, by the name of one that comes with seeksim, or as a dict. It is read when it is run."""
    return Scenario(dict(source) if isinstance(source, Mapping) else os.fspath(source))
