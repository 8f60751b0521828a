"""Finds or starts the process that has imported torch and stays, so that the next run starts in a second.

    python -m seeksim_torch.stay SECONDS [MODULE...]

The last line of output is one JSON object: the socket for seeksim_torch/warm.py, and whether it was started just now.
There is one for each Python, list of modules and environment. It ends when it was not used for SECONDS, when torch or a
module was installed anew, or when its socket is removed (`python -m seeksim_torch.build --clean`). On failure: status 2
and one line.
"""

import fcntl
import hashlib
import json
import os
import pathlib
import socket
import subprocess
import sys
from typing import Any, Dict, List

from seeksim_torch.build import cache_folder
from seeksim_torch.plan import Refusal

# What differs from one command to the next and decides nothing in a script.
_PASSING = {"PWD", "OLDPWD", "SHLVL", "_", "COLUMNS", "LINES"}
_LONGEST_PATH = 100  # of a socket


def _key(modules: List[str]) -> str:
    digest = hashlib.sha256()
    environment = {name: value for name, value in os.environ.items() if name not in _PASSING}
    for part in [sys.executable, json.dumps(modules), json.dumps(environment, sort_keys=True)]:
        digest.update(part.encode("utf-8", "surrogateescape") + b"\0")
    return digest.hexdigest()[:12]


def _answers(path: pathlib.Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        try:
            line.connect(str(path))
        except OSError:
            return False
    return True


def _start(path: pathlib.Path, seconds: str, modules: List[str]) -> None:
    path.unlink(missing_ok=True)
    command = [sys.executable, "-m", "seeksim_torch.warm", str(path), *modules]
    environment = {**os.environ, "SEEKSIM_TORCH_STAY": seconds}
    with open(path.parent / "log", "w", encoding="utf-8") as log:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log, env=environment, cwd="/",
            start_new_session=True, text=True,
        )  # fmt: skip
    assert server.stdout is not None
    for line in server.stdout:
        if line == "ready\n":
            return
    lines = (path.parent / "log").read_text(encoding="utf-8", errors="replace").split("\n")
    said = [line for line in lines if line.strip()] or ["no output"]
    raise Refusal(f"the process that imports torch and stays did not get ready: {said[-1]}")


def stay(seconds: str, modules: List[str]) -> Dict[str, Any]:
    """The process for this environment, there or started. Raises Refusal."""
    folder = cache_folder() / f"warm-{_key(modules)}"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / "ranks"
    if len(str(path)) > _LONGEST_PATH:
        raise Refusal(f"{path} is too long for a socket: set SEEKSIM_TORCH_CACHE to a shorter folder")
    with open(folder / ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fresh = not _answers(path)
        if fresh:
            _start(path, seconds, modules)
    return {"socket": str(path), "fresh": fresh}


def main() -> int:
    """The command line."""
    try:
        print(json.dumps(stay(sys.argv[1], sys.argv[2:])))
    except Refusal as why:
        print(f"seeksim: {why}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
