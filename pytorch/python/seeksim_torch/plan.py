"""What the command asks of the ranks: plan.json in the run's folder, read and checked."""

import dataclasses
import json
import os
from typing import Any, Dict, List


class Refusal(Exception):
    """Why the package cannot do what it is asked to, in one line: what, where, what to do next."""


@dataclasses.dataclass
class Record:
    """What is recorded. norms: of collectives too; weights_every: of every n-th step, 0 for never; whole: distributed
    tensors are gathered."""

    hashes: bool = True
    norms: bool = False
    stacks: bool = True
    weights_every: int = 1
    gradients: bool = True
    whole: bool = False
    max_mib: int = 512


@dataclasses.dataclass
class Plan:
    """See pytorch/README.md for each key."""

    version: int
    module: str
    backend: str = "seeksim"
    seed: int = 0
    attempt: int = 0
    timeout_s: float = 0.0
    sums: str = "canonical"
    die_with_parent: bool = True
    record: Record = dataclasses.field(default_factory=Record)
    faults: List[Dict[str, Any]] = dataclasses.field(default_factory=list)
    turns: List[str] = dataclasses.field(default_factory=list)
    relay: str = ""
    host: int = 0
    hosts: List[str] = dataclasses.field(default_factory=list)


VERSION = 1
BACKENDS = ("seeksim", "forwarded", "gathered", "own")


def _filled(kind: type, given: Any, where: str) -> Any:
    if not isinstance(given, dict):
        raise Refusal(f"{where} has to be an object")
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values = {}
    for key, value in given.items():
        if key not in fields:
            raise Refusal(f"{where}: there is no key {key!r}; keys: {', '.join(fields)}")
        wanted = fields[key].type
        if wanted is Record:
            value = _filled(Record, value, f"{where}.{key}")
        elif wanted is float and type(value) in (int, float):
            value = float(value)
        elif wanted in (bool, int, str) and type(value) is not wanted:
            raise Refusal(f"{where}.{key} has to be of type {wanted.__name__}")
        elif wanted is float:
            raise Refusal(f"{where}.{key} has to be a number")
        values[key] = value
    try:
        return kind(**values)
    except TypeError:
        missing = [f.name for f in fields.values() if f.name not in values and f.default is dataclasses.MISSING]
        raise Refusal(f"{where} lacks {', '.join(missing)}") from None


def read(folder: str) -> Plan:
    """The plan of the run in this folder. Raises Refusal."""
    path = os.path.join(folder, "plan.json")
    try:
        with open(path, encoding="utf-8") as file:
            given = json.load(file)
    except OSError as error:
        raise Refusal(f"{path}: {error.strerror}: start the script with `seeksim torch run`") from None
    except ValueError as error:
        raise Refusal(f"{path} is no JSON: {error}") from None
    plan: Plan = _filled(Plan, given, path)
    if plan.version != VERSION:
        raise Refusal(f"{path} has version {plan.version}; this package reads version {VERSION}")
    if plan.backend not in BACKENDS:
        raise Refusal(f"{path}: backend has to be one of {', '.join(BACKENDS)}, not {plan.backend!r}")
    if plan.timeout_s < 0 or plan.seed < 0 or plan.attempt < 0 or plan.record.weights_every < 0 or not 1 <= plan.record.max_mib <= 65536:
        raise Refusal(f"{path}: timeout_s, seed, attempt, weights_every and max_mib have no such values")
    if not isinstance(plan.faults, list) or not all(isinstance(rule, dict) for rule in plan.faults):
        raise Refusal(f"{path}: faults has to be a list of rules")
    if not isinstance(plan.turns, list) or not all(isinstance(one, str) for one in plan.turns):
        raise Refusal(f"{path}: turns has to be a list of names")
    if not isinstance(plan.hosts, list) or not all(isinstance(one, str) for one in plan.hosts):
        raise Refusal(f"{path}: hosts has to be a list of names")
    if plan.relay and not 0 <= plan.host < len(plan.hosts):
        raise Refusal(f"{path}: there is no host {plan.host}")
    return plan
