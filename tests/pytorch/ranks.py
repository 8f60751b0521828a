"""Starts the ranks of a script by hand and reads their records, without the command: for tests of what ranks do.

The reader is written from pytorch/core/record_layout.h by itself, so it also holds the C++ one to the format.
"""

import json
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time
from typing import Any, Dict, List, NamedTuple, Optional

HEAD, ENTRY = 8192, 256
TEXT, GROUP, CALL, STEP, LOSS, TENSOR, FAULT, VERDICT, NOTE = range(1, 10)
BLAMES = "did_not_join is_dead contribution_lost disagrees did_not_answer backend_failed unreachable".split()
USES = ["weight", "gradient", "local_gradient"]
OPS = "all_reduce reduce broadcast all_gather gather scatter reduce_scatter all_to_all send recv barrier".split()
STATES = ["created", "started", "finished", "failed"]


class Rank(NamedTuple):
    """What one rank has left."""

    status: Optional[int]  # None: it had to be killed
    output: str
    weights: Dict[Any, int]  # (step, order, name) -> hash
    gradients: Dict[Any, int]
    losses: List[Any]  # (step, micro-batch, bits)
    calls: List[Any]  # (op, step, state, hash in, hash out)
    faults: List[str]
    verdicts: List[Any]  # (blame, rank, text)


def _read(path: pathlib.Path) -> Dict[str, Any]:
    data = path.read_bytes() if path.exists() else b""
    found: Dict[str, Any] = {"weights": {}, "gradients": {}, "losses": [], "calls": [], "faults": [], "verdicts": []}
    if not data:
        return found
    assert data[:8] == b"SEEKTRC\n", path
    entries = struct.unpack_from("<Q", data, 136)[0]
    texts: List[bytes] = []
    for i in range(entries):
        at = HEAD + i * ENTRY
        kind, p = data[at], at + 8
        if kind == TEXT:
            length, offset = struct.unpack_from("<II", data, p)
            if offset == 0:
                texts.append(b"")
            texts[-1] += data[p + 8 : p + 8 + min(240, length - offset)]
        elif kind == LOSS:
            step, micro = struct.unpack_from("<qi", data, p)
            found["losses"].append((step, micro, struct.unpack_from("<Q", data, p + 16)[0]))
        elif kind == TENSOR:
            use = USES[data[p]]
            step, _, order, name, _, _ = struct.unpack_from("<qiiIII", data, p + 8)
            value = struct.unpack_from("<Q", data, p + 40)[0]
            if use != "local_gradient":
                found[use + "s"][(step, order, texts[name].decode())] = value
        elif kind == CALL:
            op, state = OPS[data[p]], STATES[data[p + 4]]
            step = struct.unpack_from("<q", data, p + 48)[0]
            found["calls"].append((op, step, state, *struct.unpack_from("<QQ", data, p + 72)))
        elif kind == FAULT:
            found["faults"].append(texts[struct.unpack_from("<I", data, p + 24)[0]].decode())
        elif kind == VERDICT:
            rank, text = struct.unpack_from("<i", data, p + 8)[0], struct.unpack_from("<I", data, p + 32)[0]
            found["verdicts"].append((BLAMES[data[p]], rank, texts[text].decode()))
    return found


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(built: Dict[str, Any], folder: pathlib.Path, script: List[str], ranks: int, **plan: Any) -> List[Rank]:
    """Runs `script` on so many ranks. A rank that goes on after all others have ended is killed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "plan.json").write_text(json.dumps({"version": 1, "module": built["module"], **plan}))
    port, processes = _free_port(), []
    for rank in range(ranks):
        env = dict(
            os.environ,
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE=str(ranks),
            LOCAL_WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
            OMP_NUM_THREADS="1",
            PYTHONPATH=built["python_path"],
            SEEKSIM_TORCH_DIR=str(folder),
        )
        with open(folder / f"output-{rank}.txt", "w") as output:
            processes.append(subprocess.Popen([sys.executable, *script], env=env, stdout=output, stderr=output))
    until = time.monotonic() + 280
    while time.monotonic() < until:
        going = [p for p in processes if p.poll() is None]
        failed = any(p.returncode not in (None, 0) for p in processes)
        if not going or (failed and len(going) <= sum(1 for f in plan.get("faults", []) if f.get("mode") == "never")):
            break
        time.sleep(0.1)
    statuses = [p.poll() for p in processes]
    for p in processes:
        if p.poll() is None:
            p.kill()
            p.wait()
    return [
        Rank(status, (folder / f"output-{r}.txt").read_text(), **_read(folder / f"rank-{r}.rec"))
        for r, status in enumerate(statuses)
    ]
