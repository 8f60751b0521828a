#!/usr/bin/env python3
"""Environments with given releases of packages, for running one script on many of them.

    python3 pytorch/tools/releases.py make torch==2.15.0 deepspeed==0.18.2
    python3 pytorch/tools/releases.py list deepspeed
    python3 pytorch/tools/releases.py installed deepspeed torch
    python3 pytorch/tools/releases.py clean

An environment is named by the list of its pins. It is made of layers that environments share: a virtual environment
with torch (make_env.py; about 1.4 GB), and a folder for each other package, put on PYTHONPATH. What the pinned packages
need besides is resolved by pip against that torch, and written down with the environment.

All lies in $SEEKSIM_TORCH_RELEASES, else $XDG_CACHE_HOME/seeksim/torch-releases. Above $SEEKSIM_TORCH_RELEASES_GIB
(25) what was not used for longest is removed. The last line of output is JSON. Status 2: no such request; 5: the
packages cannot be had.
"""

import argparse
import fcntl
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
from typing import Any, Dict, List, Optional, Set, Tuple

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import make_env  # noqa: E402
from make_env import Unavailable  # noqa: E402

DEFAULT_TORCH = "2.15.0"
PIN = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)==([A-Za-z0-9][A-Za-z0-9.+!_-]*)")
# Packages that pip wants to install beside torch, and that no run without a GPU needs.
WITHOUT_GPU = re.compile(r"(nvidia|triton|cuda|pytorch-triton)($|-)")
# DeepSpeed's setup imports torch; its kernels are not built.
FROM_SOURCE = {"deepspeed": ["--no-build-isolation"]}
BUILD_ENVIRONMENT = {"DS_BUILD_OPS": "0", "DS_ACCELERATOR": "cpu"}
PARTS = ("torch", "layers", "environments")


class BadRequest(Exception):
    """What is wrong with what was asked for, in one line."""


def cache_folder() -> pathlib.Path:
    """The cache, private to this user. Raises BadRequest where others could write to it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    given = os.environ.get("SEEKSIM_TORCH_RELEASES")
    folder = pathlib.Path(given or os.path.join(base, "seeksim", "torch-releases"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as error:
        raise BadRequest(f"{folder}: {error.strerror}: name another folder in SEEKSIM_TORCH_RELEASES") from None
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise BadRequest(f"{folder} can be written by others: name another folder in SEEKSIM_TORCH_RELEASES")
    return folder.absolute()


def normal(name: str) -> str:
    """A package's name as PyPI compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def pins_of(words: List[str]) -> Dict[str, str]:
    """Versions by package. Raises BadRequest for what is no pin, or pinned twice."""
    pins: Dict[str, str] = {}
    for word in words:
        match = PIN.fullmatch(word)
        if not match:
            raise BadRequest(f"{word!r} is no pin: write package==version")
        name = normal(match.group(1))
        if pins.setdefault(name, match.group(2)) != match.group(2):
            raise BadRequest(f"{name} is pinned to {pins[name]} and to {match.group(2)}")
    pins.setdefault("torch", DEFAULT_TORCH)
    return dict(sorted(pins.items()))


def pip(python: pathlib.Path, arguments: List[str]) -> str:
    """Output of pip. Raises Unavailable with the line in which pip says why."""
    command = [str(python), "-m", "pip", *arguments, "--disable-pip-version-check"]
    environment = {**os.environ, **BUILD_ENVIRONMENT}
    environment.pop("PYTHONPATH", None)
    environment.pop("COLUMNS", None)  # of 0 columns pip prints no report
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode == 0:
        return done.stdout
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    why = next((line for line in lines if line.startswith("ERROR:")), lines[-1] if lines else "no output")
    raise Unavailable(f"pip {' '.join(word for word in arguments if not word.startswith('-'))}: {why}")


class Cache:
    """What is there of torch, layers and environments. One process at a time adds or removes; what is there is used."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        for part in PARTS:
            (folder / part).mkdir(exist_ok=True)
        self.lock = open(folder / ".lock", "w", encoding="utf-8")  # noqa: SIM115: open until the process ends

    def change(self) -> None:
        """Waits for other processes that change the cache."""
        fcntl.flock(self.lock, fcntl.LOCK_EX)

    def torch(self, version: str) -> pathlib.Path:
        """The Python of an environment with this torch and nothing else, so that layers do not depend on chance."""
        folder = self.folder / "torch" / version
        python = make_env.make_torch(folder, version)
        for site in folder.glob("lib/python*/site-packages"):
            make_env.forget_cuda(site)
        touch(folder)
        return python

    def layer(self, python: pathlib.Path, name: str, words: List[str]) -> pathlib.Path:
        """The folder of this name, with these packages and nothing else."""
        # dill, with which datasets hashes, takes a module without "site-packages" in its path for the user's code.
        python_name = f"py{sys.version_info.major}{sys.version_info.minor}"
        folder = self.folder / "layers" / f"{name}-{python_name}-site-packages"
        if not folder.exists():
            work = folder.with_name(f".making-{folder.name}")
            shutil.rmtree(work, ignore_errors=True)
            # Python compiles what is imported: that is a small part of it.
            options = ["install", "--quiet", "--no-compile", "--no-deps", "--target", str(work), *options_for(words)]
            pip(python, [*options, *words])
            os.rename(work, folder)
        touch(folder)
        return folder

    def layers(self, python: pathlib.Path, pins: Dict[str, str], packages: Dict[str, str]) -> List[pathlib.Path]:
        """A layer for each pinned package, and one for all that they need: that changes less often."""
        words = {name: f"{name}=={version}" for name, version in sorted(packages.items())}
        folders = [self.layer(python, f"{name}-{pins[name]}", [words[name]]) for name in words if name in pins]
        others = [word for name, word in words.items() if name not in pins]
        if others:
            key = hashlib.sha256("\n".join(others).encode()).hexdigest()[:12]
            folders.append(self.layer(python, f"others-{key}", others))
        return folders

    def found(self, key: str) -> Optional[Dict[str, Any]]:
        """The environment of this key, if all of it is there."""
        file = self.folder / "environments" / f"{key}.json"
        if not file.exists():
            return None
        try:
            kept: Dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
            paths = [pathlib.Path(path) for path in (kept["python"], *kept["layers"])]
        except (ValueError, KeyError, TypeError):  # of another version of this tool, or cut short
            return None
        if not all(path.exists() for path in paths):
            return None
        for path in [file, paths[0].parent.parent, *paths[1:]]:
            touch(path)
        return kept

    def make(self, pins: Dict[str, str]) -> Dict[str, Any]:
        """The environment with these pins: its Python, and the folders for PYTHONPATH."""
        words = [f"{name}=={version}" for name, version in pins.items()]
        key = hashlib.sha256("\n".join([*words, sys.version]).encode()).hexdigest()[:16]
        began = time.monotonic()
        kept = self.found(key)
        removed = 0
        if kept is None:
            self.change()
            python = self.torch(pins["torch"])
            packages = resolve(python, words)
            folders = self.layers(python, pins, packages)
            kept = {"pins": pins, "packages": packages, "python": str(python), "layers": list(map(str, folders))}
            file = self.folder / "environments" / f"{key}.json"
            file.write_text(json.dumps(kept, indent=1), encoding="utf-8")
            removed = self.shrink({*folders, python.parent.parent})
        return {
            "key": key,
            "python": kept["python"],
            "python_path": ":".join(kept["layers"]),
            "packages": kept["packages"],
            "made_s": round(time.monotonic() - began, 1),
            "removed_bytes": removed,
        }

    def shrink(self, keep: Set[pathlib.Path]) -> int:
        """Removes layers and torches that were not used for longest, until the cache is within its limit."""
        limit = float(os.environ.get("SEEKSIM_TORCH_RELEASES_GIB", "25")) * 2**30
        entries = sorted(
            (path for part in ("torch", "layers") for path in (self.folder / part).iterdir() if path.is_dir()),
            key=lambda path: path.stat().st_mtime,
        )
        sizes = {path: size_of(path) for path in entries}
        total, removed = sum(sizes.values()), 0
        for path in entries:
            if total - removed <= limit:
                break
            if path not in keep:
                shutil.rmtree(path, ignore_errors=True)
                removed += sizes[path]
        return removed

    def clean(self) -> int:
        """Removes everything; returns its size in bytes."""
        self.change()
        removed = sum(size_of(self.folder / part) for part in PARTS)
        for part in PARTS:
            shutil.rmtree(self.folder / part, ignore_errors=True)
        return removed


def touch(path: pathlib.Path) -> None:
    """Notes that something is used now: what is used least goes first."""
    os.utime(path)


def size_of(folder: pathlib.Path) -> int:
    """Bytes of the files below a folder; what a link points to is not in it."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def options_for(words: List[str]) -> List[str]:
    """What pip has to be told to build these packages."""
    return [option for word in words for option in FROM_SOURCE.get(word.partition("==")[0], [])]


def resolve(python: pathlib.Path, words: List[str]) -> Dict[str, str]:
    """All packages that these pins need and torch's environment lacks. Raises Unavailable where there is no solution."""
    wanted = [word for word in words if not word.startswith("torch==")]
    if not wanted:
        return {}
    torch = next(word for word in words if word.startswith("torch=="))
    options = ["install", "--quiet", "--dry-run", "--report", "-", *options_for(words)]
    report = json.loads(pip(python, [*options, torch, *wanted]))
    found = {}
    for one in report["install"]:
        name = normal(one["metadata"]["name"])
        if not WITHOUT_GPU.match(name):
            found[name] = one["metadata"]["version"]
    # What torch's environment has already in the pinned version is a layer of its own none the less.
    found.update((normal(name), version) for name, _, version in (word.partition("==") for word in wanted))
    return found


def versions_of(package: str) -> List[str]:
    """Final releases of a package on PyPI, the oldest first. Raises Unavailable."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", package):
        raise BadRequest(f"{package!r} is no name of a package")
    said = pip(pathlib.Path(sys.executable), ["index", "versions", package])
    match = re.search(r"^Available versions: (.*)$", said, re.MULTILINE)
    if not match:
        raise Unavailable(f"pip index versions {package}: it lists no versions")
    return [version.strip() for version in match.group(1).split(",")][::-1]


def installed(packages: List[str]) -> Dict[str, str]:
    """Versions of those of these packages that this Python has."""
    found = {}
    for package in packages:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def answer(given: argparse.Namespace) -> Dict[str, Any]:
    """What was asked for, as the JSON object to print."""
    if given.verb == "list":
        if len(given.words) != 1:
            raise BadRequest("list takes one package")
        return {"package": given.words[0], "versions": versions_of(given.words[0])}
    if given.verb == "installed":
        return {"versions": installed(given.words)}
    cache = Cache(cache_folder())
    if given.verb == "clean":
        return {"removed_bytes": cache.clean()}
    return cache.make(pins_of(given.words))


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("verb", choices=["make", "list", "installed", "clean"])
    parser.add_argument("words", nargs="*", help="make: pins (package==version); list, installed: packages")
    given = parser.parse_args()
    status: Tuple[int, str]
    try:
        print(json.dumps(answer(given)))
        return 0
    except BadRequest as why:
        status = (2, str(why))
    except (Unavailable, OSError) as why:
        status = (5, " ".join(str(why).split()))
    print(f"seeksim: {status[1]}", file=sys.stderr)
    return status[0]


if __name__ == "__main__":
    sys.exit(main())
