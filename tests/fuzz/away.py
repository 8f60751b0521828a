"""Fuzzing on another machine: the kit that is carried there, and the result that comes home. And what is carried from one
session to the next, in the tree."""

import io
import json
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

import tally

PROGRAM = "program/fuzz"
NOT_CARRIED = re.compile(r"lib(c|m|resolv|pthread|dl|rt)\.so")  # glibc's, which fit the machine's loader
HOME_BYTES_MAX, KIT_INPUT_BYTES_MAX, KEPT_INPUT_BYTES_MAX = 15 << 20, 4 << 10, 32 << 10
HOME = "fuzz-home.tar.gz"


def libraries(program):
    """The shared libraries that a program loads, without glibc's."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"^\s*(\S+) => (/\S+)", said, re.MULTILINE)
    return [(name, path) for name, path in found if not NOT_CARRIED.match(name)]


def make_kit(file, fuzzer, targets):
    """Packs what a machine without a compiler needs: `tests/fuzz/run.py --program program/fuzz` runs in it.

    Of the grown corpora it takes the inputs that reach further than smaller ones do: each slice reads them all."""
    program, top, work = fuzzer.program, fuzzer.top, fuzzer.work
    for target in targets:
        fuzzer.shrink(target)
    with tempfile.TemporaryDirectory() as scratch, tarfile.open(file, "w:gz") as kit:
        stripped = pathlib.Path(scratch) / "fuzz"
        subprocess.run(["strip", "-o", stripped, program], check=True)
        kit.add(stripped, PROGRAM)
        for name, path in libraries(program):
            kit.add(pathlib.Path(path).resolve(), f"{pathlib.Path(PROGRAM).parent}/lib/{name}")
        scripts = sorted((top / "tests/fuzz").glob("*.py"))
        others = ("tests/fuzz/counts.json", "tests/fuzz/corpus", "scenarios/schema.json")
        for path in [*scripts, *(top / other for other in others)]:
            kit.add(path, path.relative_to(top), filter=lambda one: None if "__pycache__" in one.name else one)
        inputs = [i for i in sorted((work / "merged").glob("*/*")) if i.stat().st_size <= KIT_INPUT_BYTES_MAX]
        for path in inputs:
            kit.add(path, f"build/fuzz/corpus/{path.relative_to(work / 'merged')}")
    print(f"{file}: {file.stat().st_size >> 10} KiB, {len(inputs)} inputs beside the corpus")


def workplace():
    """A folder for grown corpora: in memory where there is room, as a file for each input is slow on a disk."""
    memory = pathlib.Path("/dev/shm")
    fits = memory.is_dir() and shutil.disk_usage(memory).free > (4 << 30)
    return pathlib.Path(tempfile.mkdtemp(prefix="fuzz", dir=memory if fits else None))


def pack_home(into, counts, work):
    """Writes into/fuzz-home.tar.gz, with the smaller inputs where not all have room, and then deletes `work`."""
    inputs = sorted((work / "merged").glob("*/*"), key=lambda path: path.stat().st_size)
    while True:
        with tarfile.open(into / HOME, "w:gz") as home:
            text = json.dumps({"began": counts.began, "ended": counts.now}).encode()
            about = tarfile.TarInfo("counts.json")
            about.size = len(text)
            home.addfile(about, io.BytesIO(text))
            for path in sorted((work / "found").glob("*")):
                home.add(path, f"found/{path.name}")
            for path in inputs:
                home.add(path, f"corpus/{path.relative_to(work / 'merged')}")
        if (into / HOME).stat().st_size <= HOME_BYTES_MAX or not inputs:
            break
        inputs = inputs[:len(inputs) * 3 // 4]
    shutil.rmtree(work)


def take_home(file, counts_file, build):
    """Adds what another machine did to the counts in the tree, and its inputs to build/fuzz. Returns what it found."""
    found = []
    with tarfile.open(file) as home:
        counts = json.load(home.extractfile("counts.json"))
        for one in home.getmembers():
            where = pathlib.PurePosixPath(one.name)
            if not one.isfile() or where.parts[0] not in ("corpus", "found") or ".." in where.parts:
                continue
            target = build / where
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(home.extractfile(one).read())
            if where.parts[0] == "found":
                found.append(target)
    tally.write(counts_file, tally.joined(tally.read(counts_file), counts["began"], counts["ended"]))
    return found


def keep(file, work):
    """Packs work/merged, so that the next session begins where this one ended. Inputs of the corpus are in the tree."""
    inputs = [i for i in sorted((work / "merged").glob("*/*")) if i.stat().st_size <= KEPT_INPUT_BYTES_MAX]
    with tarfile.open(file, "w:xz") as kept:
        for path in inputs:
            one = tarfile.TarInfo(str(path.relative_to(work / "merged")))  # no times, no owners
            one.size = path.stat().st_size
            kept.addfile(one, io.BytesIO(path.read_bytes()))
    print(f"{file}: {file.stat().st_size >> 10} KiB, {len(inputs)} inputs")


def take_kept(file, grown):
    """Unpacks what the session before kept, for each target that has no grown inputs yet."""
    if not file.exists():
        return
    have = {folder.name for folder in grown.glob("*") if any(folder.iterdir())}
    with tarfile.open(file) as kept:
        for one in kept.getmembers():
            where = pathlib.PurePosixPath(one.name)
            if not one.isfile() or len(where.parts) != 2 or ".." in where.parts or where.parts[0] in have:
                continue
            (grown / where.parts[0]).mkdir(parents=True, exist_ok=True)
            (grown / where).write_bytes(kept.extractfile(one).read())
