"""seeksim torch run on several hosts: a script of PyTorch's, in place of seeksim's own training."""

import os
import pathlib
import re
import secrets
import subprocess
import tempfile

from launchers import Launcher, Running, Torchrun

SCRIPT = ["examples/pytorch/ddp.py", "--steps", "60", "--batch", "8"]


def weights_in(story):
    """What the weights of a run that passed come to, by its last line; empty: none did."""
    found = re.search(r"^PASS .*\bweights ([0-9a-f]{16})", story, re.MULTILINE)
    return found.group(1) if found else ""


class TorchRun(Launcher):
    """The direct form: seeksim starts the ranks, two a host or one."""

    name = "torch run"
    ranks_are = ("python", "python3", "pt_main_thread")  # how their processes are called
    missing = staticmethod(Torchrun.missing)

    @staticmethod
    def options(ranks):
        # A wait of a run that is broken ends soon, one of a slow network does not.
        return ["--python", os.environ["SEEKSIM_TORCH_PYTHON"], "--np", str(ranks), "--set", "torch.timeout_s=6"]

    @classmethod
    def golden(cls, program, ranks):
        """The weights of the same script on one host."""
        with tempfile.TemporaryDirectory() as folder:
            words = [program, "torch", "run", *cls.options(ranks), "--out", folder, "--", *SCRIPT]
            done = subprocess.run([str(word) for word in words], text=True, capture_output=True)
            digest = weights_in(done.stdout)
        if not digest:
            raise RuntimeError(f"the run on one host fails:\n{done.stdout}{done.stderr}")
        return digest

    @staticmethod
    def digest(job, running):
        story = pathlib.Path(job.out) / "story.txt"
        return weights_in(story.read_text()) if story.exists() else ""

    def script(self, _):
        return SCRIPT

    def start(self, job):
        running = Running(self.network)
        token = secrets.token_hex(16)
        for number, host in enumerate(self.hosts):
            words = [self.program, "torch", "run", *self.options(self.ranks), "--nnodes", len(self.hosts), "--node-rank",
                     number, "--rdzv", f"{self.hosts[0].name}:29400", "--out", job.out, "--", *self.script(number)]
            running.start(host, words, {"SEEKSIM_TOKEN": token, **job.env(host)})
        return running


class TorchRunTorchrun(TorchRun):
    """torchrun behind the two dashes: an agent a host, which meet by c10d."""

    name = "torch run torchrun"

    def script(self, number):
        return ["torchrun", "--nnodes", len(self.hosts), "--node-rank", number, "--nproc-per-node", self.per_host,
                "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.hosts[0].name}:29400", *SCRIPT]
