"""Finds the program seeksim and calls it."""
import os
import pathlib
import shutil
import subprocess
import sys
from typing import Dict, List, NoReturn, Sequence

# A wheel brings the program with it; in the source tree, the launcher builds and runs it.
_PACKAGE = pathlib.Path(__file__).resolve().parent
_BROUGHT = _PACKAGE / "_program" / "bin" / "seeksim"
_LAUNCHER = _PACKAGE.parents[1] / "seeksim"
_BAD_INPUT = 2


class BadInput(ValueError):
    """seeksim refused what it was given (exit status 2). `problems` has one line a problem, each with its place."""

    def __init__(self, problems: Sequence[str]):
        super().__init__("\n".join(problems))
        self.problems = list(problems)


class ProgramFailed(RuntimeError):
    """The program could not be started, or ended without a report. The text says how, with what it printed."""


def program() -> str:
    """Path of the program: what SEEKSIM_PROGRAM names; what came with this package; `seeksim` on PATH; the source tree's.

    Raises ProgramFailed where there is none of these.
    """
    named = os.environ.get("SEEKSIM_PROGRAM")
    if named:
        return named
    if _BROUGHT.is_file():
        return str(_BROUGHT)
    on_path = shutil.which("seeksim")
    if on_path and pathlib.Path(on_path).resolve() != pathlib.Path(sys.argv[0]).resolve():
        return on_path
    if _LAUNCHER.is_file():
        return str(_LAUNCHER)
    raise ProgramFailed("there is no program seeksim: install its package, or set SEEKSIM_PROGRAM to its path")


def call(arguments: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    """Runs the program with these arguments and returns its status and what it printed. Raises ProgramFailed."""
    environment = dict(os.environ, COLUMNS=os.environ.get("COLUMNS", "100"))
    try:
        return subprocess.run([program(), *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              errors="replace", env=environment, check=False)
    except OSError as error:
        raise ProgramFailed(f"{program()} does not start: {error.strerror}") from error


def refuse_bad_input(done: "subprocess.CompletedProcess[str]") -> None:
    """Raises BadInput with the lines that the program printed, if it refused its input."""
    if done.returncode == _BAD_INPUT:
        raise BadInput([line for line in (done.stderr + done.stdout).splitlines() if line.strip()])


def version() -> str:
    """What the program says of itself: version, commit, compiler."""
    return call(["--version"]).stdout.strip()


def scenarios() -> Dict[str, str]:
    """Name -> path of every scenario that comes with the program."""
    paths: List[pathlib.Path] = []
    for line in call(["list", "scenarios"]).stdout.splitlines():
        words = [word for word in line.split() if word.endswith(".json")]
        paths += [pathlib.Path(word) for word in words[:1]]
    return {path.stem: str(path) for path in paths}


def main() -> NoReturn:
    """The command `seeksim` of the wheel: becomes the program."""
    os.execv(program(), ["seeksim", *sys.argv[1:]])
