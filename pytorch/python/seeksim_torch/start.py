"""Begins to watch this process: its record, its faults, the backend and the hooks."""

import atexit
import ctypes
import faulthandler
import json
import os
import signal
import sys
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from types import ModuleType
from typing import NoReturn, Optional

from seeksim_torch import plan as plans

MODULE_NAME = "seeksim_backend"
_PR_SET_PDEATHSIG = 1


def _number(name: str, default: Optional[str] = None) -> int:
    text = os.environ.get(name, default)
    try:
        value = int(text if text is not None else "")
    except ValueError:
        why = f"the environment's {name} is {text!r}, not a number: start the script with a launcher"
        raise plans.Refusal(why) from None
    if value < 0:
        raise plans.Refusal(f"the environment's {name} is negative")
    return value


def load(path: str) -> ModuleType:
    """The compiled backend. Raises plans.Refusal where it was built for another torch or cannot be loaded."""
    import torch

    try:
        with open(os.path.join(os.path.dirname(path), "build.json"), encoding="utf-8") as file:
            built = json.load(file)["torch"]
    except (OSError, ValueError, KeyError):
        raise plans.Refusal(f"{path} is no backend that `python -m seeksim_torch.build` made: run it") from None
    if built != torch.__version__:
        raise plans.Refusal(
            f"{path} was built for torch {built}, this Python has {torch.__version__}: "
            "run `python -m seeksim_torch.build` with this Python"
        )
    try:
        spec = spec_from_loader(MODULE_NAME, ExtensionFileLoader(MODULE_NAME, path))
        assert spec is not None and spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        raise plans.Refusal(f"{path} cannot be loaded: {error}") from None
    return module


def refuse(folder: str, rank: str, why: str) -> NoReturn:
    """Ends the process with status 2 and one line, which the command reads."""
    line = "seeksim: " + " ".join(why.split())
    try:
        with open(os.path.join(folder, f"refused-{rank}.txt"), "w", encoding="utf-8") as file:
            file.write(line + "\n")
    except OSError:
        pass  # the error output has it too
    sys.stderr.write(line + "\n")
    sys.stderr.flush()
    os._exit(2)  # an exception would come out of `import torch` as a traceback of twenty lines


def _suffix(attempt: int) -> str:
    return f".attempt-{attempt}" if attempt else ""


def _record(folder: str, rank: int, attempt: int) -> str:
    return os.path.join(folder, f"rank-{rank}{_suffix(attempt)}.rec")


def _begin(folder: str) -> None:
    import torch

    rank, world = _number("RANK"), _number("WORLD_SIZE", "1")
    attempt = _number("TORCHELASTIC_RESTART_COUNT", "0")
    if rank >= world:
        raise plans.Refusal(f"rank {rank} of {world} ranks: WORLD_SIZE does not match RANK")
    suffix = _suffix(attempt)
    record = _record(folder, rank, attempt)
    if os.path.exists(record):
        return  # a child of the rank that has inherited its environment
    plan = plans.read(folder)
    if plan.die_with_parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Before the record is there: whoever sees the record may ask for stacks.
    stacks = open(os.path.join(folder, f"stack-{rank}{suffix}.txt"), "w", encoding="utf-8")  # for the process's life
    faulthandler.register(signal.SIGUSR2, file=stacks, all_threads=True)
    module = load(plan.module)
    try:
        module.configure(
            record_path=record,
            rank=rank,
            world=world,
            attempt=attempt,
            resumed=plan.attempt,
            torch_version=torch.__version__,
            backend=plan.backend,
            max_bytes=plan.record.max_mib << 20,
            seed=plan.seed,
            timeout_s=plan.timeout_s,
            hashes=plan.record.hashes,
            norms=plan.record.norms,
            stacks=plan.record.stacks,
            sums=plan.sums,
            rules=plan.faults,
            earlier_records=list(filter(os.path.exists, (_record(folder, rank, n) for n in range(attempt)))),
            relay=plan.relay,
            host=plan.host,
            hosts=plan.hosts,
        )
    except (ValueError, RuntimeError) as error:
        raise plans.Refusal(str(error)) from None
    os.register_at_fork(after_in_child=module.forget)
    atexit.register(module.ended)
    from seeksim_torch import hooks, redirect, turns

    watcher = hooks.watch(module, plan.record, rank, plan.faults)
    turns.turn(watcher.habits, rank, world, plan.turns)
    if plan.backend == "seeksim":
        redirect.redirect(module)
    elif plan.backend != "own":
        redirect.forward(module, plan.backend == "gathered", plan.timeout_s)


def start() -> None:
    """Starts watching, or ends the process with status 2 and one line where it cannot."""
    folder = os.environ["SEEKSIM_TORCH_DIR"]
    try:
        _begin(folder)
    except plans.Refusal as why:
        refuse(folder, os.environ["RANK"], str(why))
