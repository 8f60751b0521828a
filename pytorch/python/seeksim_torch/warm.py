"""Starts ranks fast: one process imports torch once, and each rank is a fork of it.

    python -m seeksim_torch.warm SOCKET [MODULE...]   the server, with these modules imported besides torch; prints
                                                      "ready". With SEEKSIM_TORCH_STAY=SECONDS in its environment it
                                                      ends by itself when it was not used for so long.
    python -I -S warm.py SOCKET SCRIPT ARGS...        stands for one rank: its environment, folder and output are the
                                                      rank's, and it ends as the rank ends. When it goes, the rank is
                                                      killed.
"""

import array
import atexit
import gc
import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any, Dict, List, Optional, Tuple

_LONGEST = 1 << 24  # bytes of a request
_LOOKS_S = 2.0  # how often a server that stays looks whether it is still wanted


def stand_for_a_rank(path: str, command: List[str]) -> int:
    """The client. Returns the rank's exit status; a signal that ended the rank ends this process too."""
    request = json.dumps({"command": command, "folder": os.getcwd(), "environment": dict(os.environ)}).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.connect(path)
        line.sendmsg([len(request).to_bytes(4, "big")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [1, 2]))])
        line.sendall(request)
        answer = line.recv(64)
    if not answer:
        sys.stderr.write("seeksim: the process that starts ranks is gone\n")
        return 1
    status = int(answer)
    if status < 0:
        if -status != signal.SIGKILL:  # nobody handles that one
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    return status


class Job:
    """What a client asked for."""

    def __init__(self, line: socket.socket) -> None:
        head, control, _, _ = line.recvmsg(4, socket.CMSG_SPACE(2 * array.array("i").itemsize))
        self.output = array.array("i")
        for _, kind, data in control:
            if kind == socket.SCM_RIGHTS:
                self.output.frombytes(data)
        size = int.from_bytes(head, "big")
        text = b""
        while len(text) < min(size, _LONGEST):
            part = line.recv(size - len(text))
            if not part:
                break
            text += part
        given: Dict[str, Any] = json.loads(text)
        self.command: List[str] = given["command"]
        self.folder: str = given["folder"]
        self.environment: Dict[str, str] = given["environment"]

    def become(self) -> None:
        """In the fork: output, folder, environment and arguments are the rank's."""
        for target, source in zip((1, 2), self.output):
            os.dup2(source, target)
        for one in self.output:
            os.close(one)
        os.chdir(self.folder)
        before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        os.environ.clear()
        os.environ.update(self.environment)
        kept = [path for path in sys.path[1:] if path not in before]
        added = [path for path in self.environment.get("PYTHONPATH", "").split(os.pathsep) if path]
        sys.argv = list(self.command)
        sys.path[:] = [os.path.dirname(os.path.abspath(self.command[0])), *added, *kept]

    def close(self) -> None:
        for one in self.output:
            os.close(one)


def _stamps(modules: List[str]) -> List[Tuple[float, int]]:
    """When the files of these modules were written, and how long they are."""
    files = [getattr(sys.modules[name], "__file__", None) for name in modules if name in sys.modules]
    return [(os.stat(file).st_mtime, os.stat(file).st_size) for file in files if file and os.path.exists(file)]


class Stay:
    """Whether a server that stays is still wanted: used not long ago, its socket there, its modules as installed."""

    def __init__(self, path: str, seconds: float, modules: List[str]) -> None:
        self.path = path
        self.seconds = seconds
        self.modules = modules
        self.stamps = _stamps(modules)
        self.used = time.monotonic()

    def over(self) -> bool:
        if not self.seconds:
            return False  # somebody else ends it
        if time.monotonic() - self.used > self.seconds:
            return True
        return not os.path.exists(self.path) or _stamps(self.modules) != self.stamps


def serve(path: str, stay: Stay) -> Optional[Job]:
    """The server's life. Returns in each fork, with what it has to run; in the server, when it is not wanted."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(path)
    listener.listen(64)
    wake, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    print("ready", flush=True)
    if stay.seconds:  # who started it does not listen any more
        with open(os.devnull, "w", encoding="utf-8") as nothing:
            os.dup2(nothing.fileno(), 1)
    ranks: Dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, wake, *ranks.values()], [], [], _LOOKS_S)
        if ranks or ready:
            stay.used = time.monotonic()
        elif stay.over():
            return None
        for pid, line in list(ranks.items()):
            if line in ready:  # a client that has gone: nobody waits for its rank any more
                os.kill(pid, signal.SIGKILL)
        if wake in ready:
            os.read(wake, 4096)
        while ranks:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            line = ranks.pop(pid)
            try:
                line.sendall(str(os.waitstatus_to_exitcode(status)).encode())
            except OSError:
                pass
            line.close()
        if listener not in ready:
            continue
        line, _ = listener.accept()
        try:
            job = Job(line)
        except (OSError, ValueError, KeyError, TypeError):
            line.close()
            continue
        pid = os.fork()
        if pid == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for one in [listener, line, *ranks.values()]:
                one.close()
            os.close(wake)
            os.close(wake_write)
            return job
        job.close()
        ranks[pid] = line


def _status_of(end: SystemExit) -> int:
    """The exit status that Python gives this end."""
    if end.code is None or isinstance(end.code, int):
        return (end.code or 0) & 0xFF
    print(end.code, file=sys.stderr)
    return 1


def _run_and_end(script: str) -> None:
    """Runs the script and ends this process as Python does, but for taking its objects apart."""
    import runpy

    status = 0
    try:
        runpy.run_path(script, run_name="__main__")
    except SystemExit as end:
        status = _status_of(end)
    except KeyboardInterrupt:
        raise  # Python ends by the signal
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    threading._shutdown()  # type: ignore[attr-defined]  waits for threads that are no daemons
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def main() -> None:
    """Starts the server, and runs the script in each of its forks."""
    import torch  # noqa: F401  the point of it all
    import torch._dynamo  # the first optimizer imports it
    import torch.distributed
    import torch.nn.parallel
    import torch.utils.data  # noqa: F401

    path, modules = sys.argv[1], sys.argv[2:]
    for name in modules:
        importlib.import_module(name)
    # Else each fork touches, and so copies, all objects of torch when it collects garbage and when it ends: a second.
    gc.collect()
    gc.freeze()
    watched = ["torch", "torch.version", "seeksim_torch", *modules]
    job = serve(path, Stay(path, float(os.environ.get("SEEKSIM_TORCH_STAY", "0")), watched))
    if job is None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        return
    import runpy

    from seeksim_torch import start

    job.become()
    if "SEEKSIM_TORCH_DIR" in os.environ and "RANK" in os.environ:
        start.start()
    if os.environ.get("SEEKSIM_TORCH_ENDS_AT_ONCE"):
        _run_and_end(job.command[0])
    runpy.run_path(job.command[0], run_name="__main__")


if __name__ == "__main__":
    if __spec__ is None:  # run as a file
        sys.exit(stand_for_a_rank(sys.argv[1], sys.argv[2:]))
    main()
