"""What a run did: the JSON report as plain dicts, and the few things that everybody asks for."""
import base64
import dataclasses
from typing import Any, Dict, List, Optional

# The report writes as text what JSON has no number for.
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _number(value: Any) -> Optional[float]:
    return _NOT_FINITE.get(value, None) if isinstance(value, str) else value


@dataclasses.dataclass(frozen=True)
class Check:
    """One check of a run. looked: False where it had nothing to look at, which makes it red."""
    name: str
    ok: bool
    detail: str
    looked: bool = True


@dataclasses.dataclass(frozen=True)
class Report:
    """data: the JSON report (docs/report.md). text: what the program printed. command: the same run on a command line.
    html: the page, where it was asked for."""
    data: Dict[str, Any]
    text: str
    command: str
    html: Optional[str] = None

    @property
    def ok(self) -> bool:
        """Whether the run, or every row of the sweep, went as the scenario expects."""
        return self.exit_code == 0

    @property
    def exit_code(self) -> int:
        """0 as expected, 1 a check failed, 3 no progress, 4 a bug in seeksim."""
        return int(self.data["exit_code"])

    @property
    def sentence(self) -> str:
        """The verdict in words: the last line that the program printed."""
        lines = [line for line in self.text.splitlines() if line.strip()]
        return lines[-1] if lines else self.data.get("verdict", "")

    @property
    def checks(self) -> List[Check]:
        """All checks of a run, in their order. Of a sweep: those of its rows, one row after the other."""
        if self.rows:
            return [check for row in self.rows for check in _checks_of(row)]
        return _checks_of(self.data)

    @property
    def failed(self) -> List[Check]:
        """The checks that are red."""
        return [check for check in self.checks if not check.ok]

    @property
    def losses(self) -> List[Optional[float]]:
        """The loss of each committed step; None in runs of shapes."""
        return [_number(loss) for loss in self.data.get("loss", [])]

    @property
    def rows(self) -> List[Dict[str, Any]]:
        """The rows of a sweep, each with `settings`; empty for a single run."""
        rows: List[Dict[str, Any]] = self.data.get("rows", [])
        return rows

    def steps(self) -> List[Dict[str, Any]]:
        """A dict a committed step: step, loss, grad_norm, lr, loss_scale, committed_s, skipped."""
        keys = [k for k in ("loss", "grad_norm", "lr", "loss_scale", "committed_s", "skipped") if self.data.get(k)]
        count = max((len(self.data[key]) for key in keys), default=0)
        return [{"step": i, **{k: _number(self.data[k][i]) for k in keys if i < len(self.data[k])}} for i in range(count)]

    def table(self) -> Any:
        """The rows of a sweep, with a column a setting, or else the steps, as a pandas DataFrame. Raises ImportError."""
        import pandas  # type: ignore[import-untyped]  # where the user has it
        if not self.rows:
            return pandas.DataFrame(self.steps())
        return pandas.DataFrame([{**row.get("settings", {}), **{k: v for k, v in row.items() if _is_plain(v)}}
                                 for row in self.rows])

    def _repr_html_(self) -> str:
        """In a notebook: the page, if it was asked for, else what the program printed."""
        if self.html:
            page = base64.b64encode(self.html.encode()).decode()
            return f'<iframe src="data:text/html;base64,{page}" style="width:100%;height:40em;border:0"></iframe>'
        text = self.text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return f"<pre>{text}</pre>"


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _checks_of(data: Dict[str, Any]) -> List[Check]:
    return [Check(c["name"], c["ok"], c.get("detail", ""), c.get("looked", True)) for c in data.get("checks", [])]
