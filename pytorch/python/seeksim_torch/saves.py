"""Files of checkpoints as they are written: torch.save, torch.distributed.checkpoint, safetensors. What fails or is
damaged there is asked of the rules; the rest is the libraries' own doing."""

import contextlib
import errno
import functools
import io
import os
from types import ModuleType
from typing import Any, Callable, Iterator, List, Tuple

import torch

from seeksim_torch import engines


class Saves:
    """Stands between scripts and the functions that write checkpoints."""

    def __init__(self, watcher: Any, faults: bool) -> None:
        self.watcher = watcher
        self.faults = faults  # whether a rule of this rank is about files
        self.inside = 0  # a writer of files calls torch.save itself

    def begins(self, path: str) -> List[Tuple[str, str, float, int]]:
        """A file is about to be written: what the rules say of it. Raises what a failing disk would."""
        self.watcher.habits.say("saved", path, once=False)
        asked = self.watcher.module.asks("save", path, path) if self.faults else []
        if any(kind == "nvme_write_error" for kind, *_ in asked):
            raise OSError(errno.EIO, "Input/output error (injected by seeksim)", path)
        return asked

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1

    def save(self, own: Callable[..., Any], thing: Any, target: Any, args: Any, options: Any) -> None:
        named = isinstance(target, (str, os.PathLike))
        path = os.fspath(target) if named else str(getattr(target, "name", "memory"))
        asked = self.begins(path)
        with self.writing():
            if any(kind == "disk_full" for kind, *_ in asked):
                buffer = io.BytesIO()
                own(thing, buffer, *args, **options)
                _write_half(target, path, buffer.getvalue())
            own(thing, target, *args, **options)
        _damage_all(asked, target, path)


def _full(path: str) -> OSError:
    return OSError(errno.ENOSPC, "No space left on device (injected by seeksim)", path)


def _write_half(target: Any, path: str, whole: bytes) -> None:
    if hasattr(target, "write"):
        target.write(whole[: len(whole) // 2])
    else:
        with open(target, "wb") as file:
            file.write(whole[: len(whole) // 2])
    raise _full(path)


def _damage_all(asked: List[Tuple[str, str, float, int]], target: Any, path: str) -> None:
    for kind, mode, _, bit in asked:
        if kind != "checkpoint_corrupt":
            continue
        if isinstance(target, (str, os.PathLike)):
            _damage(path, mode, bit)
            continue
        size = target.tell()
        if mode != "flip":
            target.truncate(size // 2 if mode == "truncate" else 0)
            target.seek(0, os.SEEK_END)
        elif hasattr(target, "getbuffer"):
            target.getbuffer()[bit // 8 % size] ^= 1 << bit % 8
        else:
            target.flush()
            _damage(path, mode, bit)


def _damage(path: str, mode: str, bit: int) -> None:
    """What checkpoint_corrupt does to a file that is written."""
    if mode == "missing":
        os.unlink(path)
        return
    size = os.path.getsize(path)
    if mode == "truncate":
        os.truncate(path, size // 2)
        return
    with open(path, "r+b") as file:
        file.seek(bit // 8 % size)
        byte = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def _watch_torch(saves: Saves) -> None:
    own = torch.save

    @functools.wraps(own)
    def save(obj: Any, f: Any, *args: Any, **options: Any) -> None:  # torch's own names
        if saves.inside:
            own(obj, f, *args, **options)
        else:
            with saves.watcher.during("checkpoint"):
                saves.save(own, obj, f, args, options)

    torch.save = save
    torch.serialization.save = save


def _watch_files(saves: Saves, module: ModuleType) -> None:
    """torch.distributed.checkpoint: each file of its own is one stream."""
    system = module.FileSystem
    own = system.create_stream

    @contextlib.contextmanager
    def create_stream(self: Any, path: Any, mode: str) -> Iterator[Any]:
        if "w" not in mode:
            with own(self, path, mode) as stream:
                yield stream
            return
        asked = saves.begins(os.fspath(path))
        with saves.watcher.during("checkpoint"), saves.writing(), own(self, path, mode) as stream:
            yield stream  # the writer closes it
        if any(kind == "disk_full" for kind, *_ in asked):
            _damage(os.fspath(path), "truncate", 0)
            raise _full(os.fspath(path))
        _damage_all(asked, path, os.fspath(path))

    system.create_stream = create_stream


def _watch_safetensors(saves: Saves, module: ModuleType) -> None:
    own = module.save_file

    @functools.wraps(own)
    def save_file(tensors: Any, filename: Any, *args: Any, **options: Any) -> None:
        asked = saves.begins(os.fspath(filename))
        with saves.watcher.during("checkpoint"):
            own(tensors, filename, *args, **options)
        if any(kind == "disk_full" for kind, *_ in asked):
            _damage(os.fspath(filename), "truncate", 0)
            raise _full(os.fspath(filename))
        _damage_all(asked, filename, os.fspath(filename))

    module.save_file = save_file


def watch(watcher: Any) -> None:
    """Watches what the script saves from here on."""
    saves = Saves(watcher, "save" in watcher.faults.acts)
    _watch_torch(saves)
    engines.when_imported("torch.distributed.checkpoint.filesystem", lambda module: _watch_files(saves, module))
    engines.when_imported("safetensors.torch", lambda module: _watch_safetensors(saves, module))
