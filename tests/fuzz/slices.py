"""One slice: libFuzzer searches one target for some seconds, and what it says is read while it says it."""

import collections
import ctypes
import os
import pathlib
import re
import resource
import shutil
import subprocess
import time

STACK_BYTES = 512 << 10  # parsers run on the stacks of fibers, too
# Fast: short traces, and memory that was freed is watched for a shorter while, which spares caches. libFuzzer looks for
# no leak after each input, but LeakSanitizer does once, when the slice ends. `strict` leaves all of that on.
FAST = "malloc_context_size=2:quarantine_size_mb=8:detect_stack_use_after_return=0"
STRICT = "detect_stack_use_after_return=1"
# In turn, for each target: inputs that grow from short ones, long inputs at once, and all checks.
MODES = {
    "short": (["-len_control=100", "-detect_leaks=0"], FAST),
    "long": (["-max_len=32768", "-len_control=0", "-detect_leaks=0"], FAST),
    "strict": (["-len_control=100"], STRICT),
}
SHORT_BYTES = {"set": 512}  # a few options
SHORT_BYTES_OF_OTHERS = 1024
GROWN_INPUTS_MAX = 1000
LATE_S = 20
RELOAD_S = 20  # how often a slice looks for what slices beside it have found
NO_ASLR = 0x0040000  # ADDR_NO_RANDOMIZE: the sanitizers of clang-16 do not start under the widest randomisation
LIBC = ctypes.CDLL(None)


OF_NAMES = ("scenario", "set", "ds_config")
NUMBERS = ("9223372036854775807", "-9223372036854775808", "18446744073709551615", "2147483648", "1e300", "null")


def words_for(target, top, work):
    """The file with a dictionary for a target, or None: names of a scenario, and numbers at the ends of types."""
    if target not in OF_NAMES:
        return None
    file = work / "words.dict"
    if not file.exists():
        names = re.findall(r'"([a-z][a-z_0-9]{2,40})"', (top / "scenarios/schema.json").read_text())
        work.mkdir(parents=True, exist_ok=True)
        words = [*(f'\\"{name}\\"' for name in sorted(set(names))), *NUMBERS]
        file.write_text("".join(f'"{word}"\n' for word in words))
    return file


class Fuzzer:
    """The program, built here or elsewhere, and the folder in which it works."""

    def __init__(self, program, work, kept, top, nice=15):
        self.program, self.work, self.kept, self.top, self.nice = program, work, kept, top, nice
        self.leaks = True  # LeakSanitizer can be used here

    def small_stack(self):
        os.nice(self.nice)
        LIBC.personality(NO_ASLR)  # where this is not allowed, it changes nothing
        resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))

    def environment(self, target, options):
        beside = self.program.parent / "lib"
        paths = {"LD_LIBRARY_PATH": str(beside)} if beside.is_dir() else {}
        leaks = "" if self.leaks else ":detect_leaks=0"
        return {**os.environ, **paths, "SEEKSIM_FUZZ_TARGET": target, "ASAN_OPTIONS": options + leaks}

    def start(self, target, words, mode="short", stderr=subprocess.PIPE):
        """Begins to work on a target; what it says comes as lines of `stderr`."""
        of_mode, options = MODES[mode]
        short = SHORT_BYTES.get(target, SHORT_BYTES_OF_OTHERS)
        bounds = [f"-max_len={short}", *of_mode, f"-timeout={LATE_S}", "-report_slow_units=600",
                  "-rss_limit_mb=2048", f"-reload={RELOAD_S}"]
        if words_of := words_for(target, self.top, self.work):
            bounds.append(f"-dict={words_of}")
        return subprocess.Popen([self.program, *bounds, *words], cwd=self.top, preexec_fn=self.small_stack, text=True,
                                env=self.environment(target, options), errors="replace",
                                stdout=subprocess.DEVNULL, stderr=stderr)

    def probe(self, target):
        """Sees that the program starts, and whether LeakSanitizer may look into it here."""
        said = self.start(target, ["-runs=1"], "strict").communicate()[1]
        if "LeakSanitizer has encountered a fatal error" in said:
            print("LeakSanitizer cannot work here: leaks are not looked for", flush=True)
            self.leaks = False
            said = self.start(target, ["-runs=1"], "strict").communicate()[1]
        if not re.search(r"Done \d+ runs", said):
            raise RuntimeError(f"{self.program} does not run:\n{said[-3000:]}")

    def merge(self, target, into, grown, *more):
        """Copies to `into` those inputs of `grown` that reach further than what lies there."""
        run = self.start(target, ["-merge=1", *more, into, grown], "long")
        run.communicate()
        return run.returncode == 0

    def is_late(self, target, file):
        """Whether an input takes longer than LATE_S of a processor: libFuzzer's clock runs on where others work, too."""
        process = self.start(target, [file, f"-timeout={30 * LATE_S}"], "long", stderr=subprocess.DEVNULL)
        _, process.returncode, used = os.wait4(process.pid, 0)
        return used.ru_utime + used.ru_stime > LATE_S

    def tidy(self, target):
        """Deletes grown inputs that are not needed, where they are many: each slice reads all before it searches."""
        grown, merged = self.work / "corpus" / target, self.work / "merged" / target
        if not grown.is_dir() or len(list(grown.iterdir())) <= GROWN_INPUTS_MAX:
            return
        self.shrink(target)
        shutil.rmtree(grown)
        merged.rename(grown)

    def shrink(self, target, *more):
        """Fills `work`/merged with those grown inputs that are needed to reach what all of them reach."""
        merged, grown = self.work / "merged" / target, self.work / "corpus" / target
        shutil.rmtree(merged, ignore_errors=True)
        merged.mkdir(parents=True)
        if grown.is_dir() and not self.merge(target, merged, grown, *more):
            shutil.copytree(grown, merged, dirs_exist_ok=True)

    def shrink_to_edges(self, target):
        """The same of edges alone, however often each is passed: far fewer."""
        self.shrink(target, "-use_counters=0")


class Slice:
    """What one slice did."""

    MARK = re.compile(r"#(\d+)\s+(\w+)\s+cov: (\d+)")
    LAST = re.compile(r"stat::number_of_executed_units:\s*(\d+)")

    def __init__(self, target, mode):
        self.target, self.mode = target, mode
        self.began, self.ended = time.monotonic(), None
        self.total = self.edges = 0
        self.first = None  # inputs of the corpus that it read at its start: they count as no execution
        self.reached_at = None  # when it reached an edge that nobody had reached before
        self.marks = []  # (time, executions)
        self.found, self.trouble = [], None

    @property
    def executions(self):
        return 0 if self.first is None else self.total - self.first

    def since(self, moment):
        """Executions that surely came after a moment."""
        if moment is None or moment <= self.began:
            return self.executions
        return self.total - next((n for at, n in self.marks if at >= moment), self.total)

    def hear(self, line):
        mark = self.MARK.match(line)
        if mark is None:
            if last := self.LAST.match(line):
                self.total = int(last.group(1))
            return
        now, n, word, edges = time.monotonic(), int(mark.group(1)), mark.group(2), int(mark.group(3))
        self.total = max(self.total, n)
        if word == "INITED":
            self.first = n
        elif self.first is not None and edges > self.edges and word != "RELOAD":
            self.reached_at = now  # RELOAD: a slice beside it reached them, and has said so
        self.edges = max(self.edges, edges)
        if self.first is not None and (not self.marks or now - self.marks[-1][0] > 0.2):
            self.marks.append((now, n))

    def run(self, fuzzer, seconds):
        grown, found = fuzzer.work / "corpus" / self.target, fuzzer.work / "found"
        for folder in (grown, found):
            folder.mkdir(parents=True, exist_ok=True)
        prefix = f"{found}/{self.target}-{self.began:.3f}-"
        words = [grown, fuzzer.kept / self.target, f"-max_total_time={max(1, int(seconds))}", "-print_final_stats=1",
                 f"-artifact_prefix={prefix}"]
        said = collections.deque(maxlen=400)
        process = fuzzer.start(self.target, words, self.mode)
        for line in process.stderr:
            said.append(line)
            self.hear(line)
        process.wait()
        self.ended = time.monotonic()
        self.found = sorted(str(f) for f in found.iterdir() if str(f).startswith(prefix))
        text = "".join(said)
        if self.found and f"{prefix}timeout" in self.found[0] and not fuzzer.is_late(self.target, self.found[0]):
            slow = pathlib.Path(self.found.pop())
            slow.unlink()
            (grown / slow.name.rpartition("-")[2]).unlink(missing_ok=True)  # it would cost each slice as much
            return self
        if self.found:
            (found / (os.path.basename(prefix) + "said.txt")).write_text(text)
        elif process.returncode != 0 or not self.marks:
            self.trouble = f"{self.target}: the fuzzer ended with status {process.returncode}:\n{text[-3000:]}"
        return self
