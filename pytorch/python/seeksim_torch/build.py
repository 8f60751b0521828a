"""Compiles the backend against the installed torch, once for each torch, Python and source.

    python -m seeksim_torch.build [--cache DIR] [--clean]

The last line of output is one JSON object; see pytorch/README.md. On failure: status 2 and one line.
"""

import argparse
import concurrent.futures
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pathlib
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any, Dict, List

from seeksim_torch.plan import Refusal
from seeksim_torch.start import MODULE_NAME

PYTHON_PATH = pathlib.Path(__file__).resolve().parents[1]
ROOT = PYTHON_PATH.parents[1]
# What the backend is made of: its own files, and of the project what they need (torch-free).
SOURCES = [
    "pytorch/backend/*.cpp",
    "pytorch/core/*.cpp",
    "kernels/check.cpp",
    "faults/trigger.cpp",
    "faults/pace.cpp",
    "faults/catalogue.cpp",
    "faults/rule_text.cpp",
    "faults/rule_review.cpp",
    "runtime/seams/op.cpp",
    "runtime/seams/buffer.cpp",
    "runtime/seams/error.cpp",
]
HEADERS = ["pytorch/**/*.h", "kernels/*.h", "faults/*.h", "faults/*.inl", "runtime/seams/*.h", "runtime/seams/*.inl"]
PRELOAD = "pytorch/preload/nccl.cpp"  # a library of its own: it is loaded before NCCL
PRELOAD_NAME = "libseeksim_nccl.so"
KEPT = 8  # backends in the cache


def _files(patterns: List[str]) -> List[pathlib.Path]:
    found = [sorted(ROOT.glob(pattern)) for pattern in patterns]
    for pattern, paths in zip(patterns, found):
        if not paths:
            raise Refusal(f"{ROOT}/{pattern} is missing: the installation of seeksim is incomplete")
    return [path for paths in found for path in paths]


def compiler() -> str:
    """The C++ compiler: $CXX, else c++. Raises Refusal where there is none."""
    name = os.environ.get("CXX", "c++")
    if shutil.which(name) is None:
        raise Refusal(f"there is no C++ compiler {name}: install g++ (12 or newer), or set CXX")
    return name


def _flags() -> List[str]:
    import torch
    from torch.utils import cpp_extension

    flags = ["-O3", "-std=c++20", "-fPIC", "-ffp-contract=off", "-fvisibility=hidden", "-g1"]
    flags += [f"-DTORCH_EXTENSION_NAME={MODULE_NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H", "-DFMT_HEADER_ONLY=1"]
    flags += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
    for part in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):  # releases whose pybind11 wants to know its own ABI
        value = getattr(torch._C, f"_PYBIND11_{part}", None)
        if value is not None:
            flags.append(f'-DPYBIND11_{part}="{value}"')
    flags.append(f"-I{ROOT}")
    flags += [arg for path in cpp_extension.include_paths() for arg in ("-isystem", path)]
    return flags + ["-isystem", sysconfig.get_paths()["include"]]


def cache_folder(given: str = "") -> pathlib.Path:
    """The cache: private to this user. Raises Refusal where it is not."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    folder = pathlib.Path(given or os.environ.get("SEEKSIM_TORCH_CACHE") or os.path.join(base, "seeksim", "torch"))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except OSError as error:
        raise Refusal(f"{folder}: {error.strerror}: name another cache with --cache") from None
    if about.st_uid != os.getuid() or about.st_mode & 0o022:
        raise Refusal(f"{folder} can be written by others: what is compiled there would be theirs; use --cache")
    return folder


def _key(sources: List[pathlib.Path]) -> str:
    import torch

    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=False).stdout
    digest = hashlib.sha256()
    for part in [torch.__version__, str(sysconfig.get_config_var("EXT_SUFFIX")), platform.machine(), version]:
        digest.update(part.encode() + b"\0")
    for path in sources + _files([*HEADERS, PRELOAD]):
        digest.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return f"torch-{torch.__version__}-{digest.hexdigest()[:16]}"


def _run(command: List[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return
    lines = [line for line in done.stderr.splitlines() if "error" in line] or done.stderr.splitlines() or ["no output"]
    missing = {"fmt/": "libfmt-dev", "xxhash.h": "libxxhash-dev", "Python.h": "python3-dev"}
    advice = next((f": install {package}" for file, package in missing.items() if file in lines[0]), "")
    raise Refusal(f"{what} does not compile against this torch: {lines[0].strip()}{advice}")


def _batches(sources: List[pathlib.Path]) -> Dict[str, List[pathlib.Path]]:
    """What is compiled in one go, the longest first: a room's files together, which read torch's headers once. The
    bindings take as long as all others of their room."""
    bindings = [path for path in sources if path.name == "bindings.cpp"]
    batches = {"bindings": bindings}
    for path in sources:
        if path not in bindings:
            room = str(path.parent.relative_to(ROOT)).split("/")
            batches.setdefault("_".join(room if room[0] == "pytorch" else ["others"]), []).append(path)
    return batches


def _compile(sources: List[pathlib.Path], folder: pathlib.Path) -> None:
    from torch.utils import cpp_extension

    flags = _flags()
    batches = _batches(sources)
    for name, paths in batches.items():
        (folder / f"{name}.cpp").write_text("".join(f'#include "{path}"\n' for path in paths), encoding="utf-8")
    objects = [folder / f"{name}.o" for name in batches]
    jobs = max(1, min(int(os.environ.get("SEEKSIM_JOBS", os.cpu_count() or 1)), len(batches)))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        each = [
            pool.submit(_run, [compiler(), *flags, "-c", str(out.with_suffix(".cpp")), "-o", str(out)], "the backend")
            for out in objects
        ]
        try:
            for one in each:
                one.result()
        except Refusal:
            pool.shutdown(cancel_futures=True)
            raise
    link = [compiler(), "-shared", "-o", str(folder / f"{MODULE_NAME}.so"), *map(str, objects)]
    link += [f"-L{path}" for path in cpp_extension.library_paths()]
    _run(link + ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"], "the backend")
    for path in objects:
        path.unlink()
        path.with_suffix(".cpp").unlink()
    preload = [compiler(), "-O2", "-std=c++20", "-fPIC", "-shared", "-fvisibility=hidden", str(ROOT / PRELOAD)]
    _run([*preload, "-o", str(folder / PRELOAD_NAME), "-ldl"], PRELOAD)


def _used_ns(note: pathlib.Path) -> int:
    try:
        return note.stat().st_mtime_ns
    except OSError:  # somebody else forgets it at this moment
        return 0


def _forget_old(cache: pathlib.Path, keep: pathlib.Path) -> None:
    """Removes what was not used for longest. A use of build.json's folder is written down as the file's time."""
    built = sorted(cache.glob("torch-*/build.json"), key=_used_ns)
    for path in built[:-KEPT]:
        if path.parent != keep:
            shutil.rmtree(path.parent, ignore_errors=True)


def no_torch(error: ImportError) -> str:
    """What to say where `import torch` fails."""
    return f"{sys.executable} has no torch that can be imported ({error}): install it, or name a Python that has it with --python"


def build(cache: pathlib.Path) -> Dict[str, Any]:
    """Makes sure that the backend for this Python's torch is in the cache. Raises Refusal."""
    try:
        import torch
    except ImportError as error:
        raise Refusal(no_torch(error)) from None
    # It says that there is no GPU: nobody asked.
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)
    sources = _files(SOURCES)
    final = cache / _key(sources)
    module = final / f"{MODULE_NAME}.so"
    began = time.monotonic()
    fresh = False
    if not module.exists():
        # A second build of the same waits, and finds the first one's work. Others go on meanwhile.
        with open(cache / f"{final.name}.lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh = not module.exists()
            if fresh:
                _build_into(final, sources, torch.__version__)
    with contextlib.suppress(OSError):  # a cache that somebody else keeps
        os.utime(final / "build.json")
    took = round(time.monotonic() - began, 1) if fresh else 0
    return {"torch": torch.__version__, "module": str(module), "python_path": str(PYTHON_PATH), "built_s": took}


def _build_into(final: pathlib.Path, sources: List[pathlib.Path], version: str) -> None:
    """The caller has the lock of this build."""
    cache = final.parent
    prefix = f".building-{final.name}-"
    for dead in cache.glob(f"{prefix}*"):  # of a build that was killed
        shutil.rmtree(dead, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=cache) as work:
        inner = pathlib.Path(work) / "backend"
        inner.mkdir()
        say = f"note: compiling the backend against torch {version}, once; it takes about a minute"
        print(say, file=sys.stderr, flush=True)
        _compile(sources, inner)
        (inner / "build.json").write_text(json.dumps({"torch": version}), encoding="utf-8")
        shutil.rmtree(final, ignore_errors=True)
        os.rename(inner, final)
    _forget_old(cache, final)


def clean(cache: pathlib.Path) -> Dict[str, Any]:
    """Empties the cache. A process that stays (seeksim_torch/stay.py) ends when its socket is gone."""
    removed = 0
    for folder in [*cache.glob("torch-*"), *cache.glob("warm-*"), *cache.glob(".building-*")]:
        removed += sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder, ignore_errors=True)
    for lock in cache.glob("*.lock"):
        lock.unlink(missing_ok=True)
    return {"removed_bytes": removed}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m seeksim_torch.build", description=__doc__.splitlines()[0])
    parser.add_argument("--cache", default="", help="folder of built backends")
    parser.add_argument("--clean", action="store_true", help="empty the cache")
    given = parser.parse_args()
    try:
        cache = cache_folder(given.cache)
        print(json.dumps(clean(cache) if given.clean else build(cache)))
    except Refusal as why:
        print(f"seeksim: {why}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
