#!/usr/bin/env python3
"""Makes a virtual environment with torch and without CUDA's libraries, for tests on a machine without a GPU.

    python3 pytorch/tools/make_env.py [DIR] [--torch VERSION]

torch's Linux wheel links against a dozen CUDA libraries, about 3 GB of further wheels. Without a GPU none of their
functions is called, but the loader wants the files and their symbols. So this script asks `nm` which symbols torch's
libraries want from elsewhere, and compiles one library that has them all (each prints its name and aborts) and an empty
one for each missing file. The CUDA runtime (2 MB) is the real one: it is what answers "no device". 1.6 GB in all, with
what trains on top of torch: DeepSpeed (nothing of it is compiled), accelerate, transformers and Lightning.

The last line of output is the path of the environment's Python. Status 5: the packages cannot be had.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
from typing import List, Set

SMALL = ["filelock", "sympy", "networkx", "jinja2", "fsspec", "typing-extensions", "numpy", "setuptools>=77.0.3"]
FRAMEWORKS = ["deepspeed==0.19.8", "accelerate==1.15.0", "transformers==5.23.0", "lightning==2.6.6"]
CUDA_FILE = re.compile(r"lib(cu|nccl|nv)")
CUDA_SYMBOL = re.compile(r"(cu|nccl|nv|__nv)")
# The runtime is real. Of the driver there is none: the runtime looks for it itself and can tell.
REAL = ("libcudart.so", "libcuda.so")


class Unavailable(Exception):
    """What cannot be had, in one line."""


def run(command: List[str]) -> str:
    """Output of a program. Raises Unavailable with the last line that it said."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise Unavailable(f"{' '.join(command[:4])} ...: {said}")
    return done.stdout


def needed_files(library: pathlib.Path) -> Set[str]:
    return set(re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-d", str(library)])))


def symbols(library: pathlib.Path, which: str) -> Set[str]:
    """Dynamic symbols, without their versions; weak ones may be missing and are left out."""
    found = set()
    for line in run(["nm", "-D", which, str(library)]).splitlines():
        kind, name = line.split()[-2:]
        if kind not in "wv":
            found.add(name.split("@")[0])
    return found


def compile_library(target: pathlib.Path, source: str, more: List[str]) -> None:
    with tempfile.TemporaryDirectory() as work:
        file = pathlib.Path(work) / "stubs.c"
        file.write_text(source, encoding="utf-8")
        flags = ["-shared", "-fPIC", "-w", "-fno-builtin", f"-Wl,-soname,{target.name}"]
        run(["cc", *flags, "-o", str(target), str(file), *more])


def make_stubs(site: pathlib.Path) -> str:
    """Makes torch in these site-packages importable; says what it did."""
    lib = site / "torch" / "lib"
    own = sorted(lib.glob("*.so*"))
    runtime = next(iter(site.glob("nvidia/**/libcudart.so.*")), None)
    if runtime is None:
        return "this torch needs no CUDA"
    wanted: Set[str] = set()
    files: Set[str] = set()
    have = symbols(runtime, "--defined-only")
    for library in own:
        wanted |= symbols(library, "--undefined-only")
        have |= symbols(library, "--defined-only")
        files |= {name for name in needed_files(library) if CUDA_FILE.match(name)}
    stubs = sorted(name for name in wanted - have if CUDA_SYMBOL.match(name))
    missing = sorted(name for name in files if not (lib / name).exists() and not name.startswith(REAL))
    text = "#include <stdio.h>\n#include <stdlib.h>\n"
    text += 'static void stub(const char *name) { fprintf(stderr, "stub of CUDA called: %s\\n", name); abort(); }\n'
    text += "".join(f'void {name}(void) {{ stub("{name}"); }}\n' for name in stubs)
    compile_library(lib / "libcuda_stubs.so", text, [])
    for name in missing:
        compile_library(lib / name, "", ["-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN", f"-L{lib}", "-l:libcuda_stubs.so"])
    if not (lib / runtime.name).exists():
        (lib / runtime.name).symlink_to(os.path.relpath(runtime, lib))
    return f"{len(stubs)} stubs for {len(missing)} libraries"


def forget_cuda(site: pathlib.Path) -> None:
    """Else pip fetches CUDA's libraries with the next package that asks for torch."""
    for metadata in site.glob("torch-*.dist-info/METADATA"):
        lines = metadata.read_text(encoding="utf-8").splitlines(keepends=True)
        kept = [line for line in lines if not re.match(r"Requires-Dist: (nvidia|cuda|triton)", line)]
        metadata.write_text("".join(kept), encoding="utf-8")


def add_frameworks(folder: pathlib.Path, python: pathlib.Path) -> None:
    """Installs what tests of other frameworks need. Where that cannot be had, torch's own scripts still run."""
    done = folder / "frameworks"
    if done.exists() and done.read_text(encoding="utf-8").split() == FRAMEWORKS:
        return
    for site in folder.glob("lib/python*/site-packages"):
        forget_cuda(site)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-build-isolation"]
    os.environ["DS_BUILD_OPS"] = "0"
    try:
        run([*pip, *FRAMEWORKS])
        done.write_text("\n".join(FRAMEWORKS), encoding="utf-8")
    except Unavailable as why:
        print(f"seeksim: without {', '.join(FRAMEWORKS)}: {why}")


def make(folder: pathlib.Path, version: str) -> pathlib.Path:
    """The environment's Python; nothing is done where the environment is there already."""
    python = make_torch(folder, version)
    add_frameworks(folder, python)
    return python


def make_torch(folder: pathlib.Path, version: str) -> pathlib.Path:
    """The same with torch alone."""
    python = folder / "bin" / "python"
    done = folder / "made"
    if done.exists() and done.read_text(encoding="utf-8") == version:
        return python
    for tool in ("nm", "readelf", "cc"):
        if shutil.which(tool) is None:
            raise Unavailable(f"{tool} is missing: install binutils and gcc")
    shutil.rmtree(folder, ignore_errors=True)
    run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    run([*pip, "--no-deps", f"torch=={version}"])
    metadata = run([str(python), "-c", "import importlib.metadata as m; print(*m.requires('torch'), sep='\\n')"])
    runtimes = re.findall(r"^(?:nvidia-cuda-runtime[\w-]*)", metadata, re.MULTILINE)
    # Releases name the runtime's package after CUDA's version, or not, or as an extra of one package for all.
    run([*pip, "--no-deps", runtimes[0] if runtimes else "nvidia-cuda-runtime"])
    run([*pip, *SMALL])
    site = next(folder.glob("lib/python*/site-packages"))
    print(make_stubs(site))
    run([str(python), "-c", "import torch; torch.ones(2).sum()"])
    done.write_text(version, encoding="utf-8")
    return python


def main() -> int:
    """The command line."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    default = os.environ.get("SEEKSIM_TORCH_ENV") or os.path.join(base, "seeksim", "torch-env")
    parser = argparse.ArgumentParser(description="A virtual environment with torch and without CUDA's libraries.")
    parser.add_argument("folder", nargs="?", default=default)
    parser.add_argument("--torch", default="2.15.0", help="torch's version")
    given = parser.parse_args()
    try:
        print(make(pathlib.Path(given.folder).absolute(), given.torch))
    except Unavailable as why:
        print(f"seeksim: {why}", file=sys.stderr)
        return 5
    return 0


if __name__ == "__main__":
    sys.exit(main())
