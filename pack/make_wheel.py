#!/usr/bin/env python3
"""Makes a wheel for pip of a built tree: the program with its shared libraries, scenarios, goldens, the Python package.

    pack/make_wheel.py BUILD [--out DIR]

BUILD is a build folder with the program built (`./seeksim build wheel` builds it). The wheel goes to DIR (default: BUILD)
and its path is the last line of output. Its tag names the oldest glibc that its files ask for, as readelf reads them, and
its bytes depend on nothing but these files. Needs cmake, ldd and readelf.
"""
import argparse
import base64
import hashlib
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
# glibc's own, which every Linux has. All others travel in the wheel.
GLIBC = re.compile(r"(linux-vdso|ld-linux.*|lib(c|m|dl|rt|pthread|resolv|util))\.so")
# What a shell or `man` looks for elsewhere.
LEFT_OUT = ("share/bash-completion/", "share/zsh/", "share/fish/", "share/man/", "share/doc/")


def output(*command) -> str:
    """What a program prints. Ends the script with its last words if it fails."""
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"make_wheel: {command[0]} failed: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def shared_libraries(program: pathlib.Path) -> dict:
    """Name -> path of each shared library that the program loads, but glibc's."""
    found = {}
    for line in output("ldd", program).splitlines():
        name, _, rest = line.strip().partition(" => ")
        if rest.startswith("not found"):
            sys.exit(f"make_wheel: {program.name} needs {name}, which is not here")
        if rest and not GLIBC.match(name):
            found[name] = pathlib.Path(rest.split(" (")[0])
    return found


def newest_glibc(files) -> tuple:
    """The newest version of glibc that one of these files asks for, as (major, minor)."""
    versions = {(2, 17)}
    for file in files:
        text = output("readelf", "--version-info", "--wide", file)
        versions |= {tuple(map(int, v)) for v in re.findall(r"\bGLIBC_(\d+)\.(\d+)", text)}
    return max(versions)


def installed(build: pathlib.Path, folder: pathlib.Path) -> dict:
    """Path in the wheel -> file, of what `cmake --install` puts into `folder`, and of the libraries it needs."""
    output("cmake", "--install", build, "--component", "program", "--prefix", folder, "--strip")
    files = {}
    for file in sorted(folder.rglob("*")):
        inside = str(file.relative_to(folder))
        if file.is_file() and not inside.startswith(LEFT_OUT):
            files[f"seeksim/_program/{inside}"] = file
    for name, path in sorted(shared_libraries(folder / "bin/seeksim").items()):
        files[f"seeksim/_program/lib/{name}"] = path.resolve()
    return files


def metadata(version: str, tag: str) -> dict:
    """The files that make a zip a wheel, but RECORD."""
    return {
        "METADATA": f"Metadata-Version: 2.1\nName: seeksim\nVersion: {version}\n"
                    "Summary: fault injection and correctness checks for distributed training\n"
                    "License: Apache-2.0\nRequires-Python: >=3.8\n"
                    "Provides-Extra: testing\nRequires-Dist: hypothesis; extra == 'testing'\n"
                    "Provides-Extra: tables\nRequires-Dist: pandas; extra == 'tables'\n",
        "WHEEL": f"Wheel-Version: 1.0\nGenerator: seeksim\nRoot-Is-Purelib: false\nTag: {tag}\n",
        "entry_points.txt": "[console_scripts]\nseeksim = seeksim._program:main\n",
    }


def write_wheel(path: pathlib.Path, folder: str, files: dict, texts: dict):
    """The zip, with RECORD last. `files` are paths or bytes, by their place in the wheel."""
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as wheel:
        for place, source in [*sorted(files.items()), *((f"{folder}/{n}", t.encode()) for n, t in texts.items())]:
            data = source if isinstance(source, bytes) else source.read_bytes()
            executable = place.endswith("/bin/seeksim") or "/lib/" in place
            entry = zipfile.ZipInfo(place, date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if executable else 0o100644) << 16
            wheel.writestr(entry, data)
            digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            record.append(f"{place},sha256={digest},{len(data)}\n")
        record.append(f"{folder}/RECORD,,\n")
        wheel.writestr(zipfile.ZipInfo(f"{folder}/RECORD", date_time=(1980, 1, 1, 0, 0, 0)), "".join(record))


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("build", type=pathlib.Path)
    words.add_argument("--out", type=pathlib.Path)
    given = words.parse_args()
    if not (given.build / "seeksim").is_file():
        sys.exit(f"make_wheel: {given.build}/seeksim is not there: build it first (./seeksim build)")
    out = given.out or given.build
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        files = installed(given.build.resolve(), pathlib.Path(folder))
        programs = [f for place, f in files.items() if place.endswith("/bin/seeksim") or "/_program/lib/" in place]
        glibc = newest_glibc(programs)
        version = re.search(r"\d+\.\d+\.\d+", output(pathlib.Path(folder) / "bin/seeksim", "--version"))[0]
        tag = f"py3-none-manylinux_{glibc[0]}_{glibc[1]}_{output('uname', '-m').strip()}"
        for source in sorted((ROOT / "python/seeksim").iterdir()):
            if source.suffix == ".py" or source.name == "py.typed":
                files[f"seeksim/{source.name}"] = source
        path = out / f"seeksim-{version}-{tag}.whl"
        write_wheel(path, f"seeksim-{version}.dist-info", files, metadata(version, tag))
    print(path)


if __name__ == "__main__":
    main()
