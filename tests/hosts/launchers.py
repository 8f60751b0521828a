"""The ways to start a job on several hosts. Each takes a network and a job's description and starts its processes."""

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
import time

from namespaces import call

PATIENCE_S = 180  # a job that has not ended by then hangs


class Running:
    """The processes that a launcher has started: the first one's status and words are those of the job."""

    def __init__(self, network):
        self.shared, self.started = network.shared, []
        self.before = {host: host.processes() for host in network.hosts}  # daemons that stay

    def start(self, host, words, env=None):
        path = self.shared / f"said.{len(self.started)}"
        with open(path, "w") as output:
            self.started.append((host, path, host.start(words, output, env)))

    def ended(self):
        return self.started[0][2].poll() is not None

    def statuses(self, grace_s, patience_s=PATIENCE_S):
        """Exit statuses in order of start; None where a process has not ended in time: the job's within `patience_s`, the
        others' within `grace_s` after it."""
        found = [self.status(self.started[0][2], patience_s)]
        until = time.monotonic() + grace_s
        return found + [self.status(process, until - time.monotonic()) for _, _, process in self.started[1:]]

    def await_ranks(self):
        """Until no rank is left on any host."""
        until = time.monotonic() + PATIENCE_S
        while any(host.processes("seeksim") for host in self.before) and time.monotonic() < until:
            time.sleep(0.05)

    @staticmethod
    def status(process, patience_s):
        try:
            status = process.wait(max(0, patience_s))
            return status if status >= 0 else 128 - status
        except subprocess.TimeoutExpired:
            return None

    def said(self, number=0):
        return self.started[number][1].read_text(errors="replace")

    def all_said(self):
        return "\n".join(self.said(number) for number in range(len(self.started)))

    def end(self):
        """Ends what is left of the job, and what it has started on other hosts."""
        for host, before in self.before.items():
            for pid in set(host.processes()) - set(before):
                with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
                    os.kill(pid, signal.SIGKILL)
        for _, _, process in self.started:
            process.kill()  # nsenter stops with what it started
            process.wait()


class Launcher:
    """Has `golden` and `digest` of its own where it does not run seeksim's training."""

    name = command = ""
    golden = digest = None
    packages = ()
    status_a_rank = False  # each process that it starts is a rank

    def __init__(self, network, program, per_host):
        self.network, self.program, self.per_host = network, str(program), per_host
        self.hosts = network.hosts
        self.ranks = per_host * len(self.hosts)
        self.prepare()

    @staticmethod
    def missing():
        """Why this launcher cannot be had here; empty: it can."""
        return ""

    def prepare(self):
        pass

    def world(self):
        return ["--set", f"world.nodes={len(self.hosts)}", "--set", f"world.ranks_per_node={self.per_host}"]

    def run(self, job):
        return [self.program, "run", job.scenario, "--backend", "mpi", *self.world(), *job.more]


class ByHand(Launcher):
    """What torchrun would set, set by hand: one process at a time."""

    name, command = "variables", "RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, SEEKSIM_TOKEN"
    status_a_rank = True

    def start(self, job):
        running = Running(self.network)
        token = secrets.token_hex(16)
        for rank in range(self.ranks):
            host = self.hosts[rank // self.per_host]
            env = {"RANK": rank, "WORLD_SIZE": self.ranks, "LOCAL_RANK": rank % self.per_host,
                   "MASTER_ADDR": self.hosts[0].name, "MASTER_PORT": 29400, "SEEKSIM_TOKEN": token, **job.env(host)}
            running.start(host, self.run(job), {key: str(value) for key, value in env.items()})
        return running


class Torchrun(Launcher):
    """torchrun itself, one agent a host, which meet by c10d. It decides on which host rank 0 is."""

    name, command = "torchrun", "torchrun --rdzv-backend c10d"
    restarts = 0

    @staticmethod
    def missing():
        found = os.environ.get("SEEKSIM_TORCH_PYTHON", "")
        return "" if found else "there is no environment with torch (./seeksim test torch makes one)"

    def start(self, job):
        running = Running(self.network)
        shared = ["-m", "torch.distributed.run", "--nnodes", len(self.hosts), "--nproc-per-node", self.per_host,
                  "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.hosts[0].name}:29400",
                  "--rdzv-id", secrets.token_hex(16), "--max-restarts", self.restarts, "--no-python"]
        for host in self.hosts:
            running.start(host, [os.environ["SEEKSIM_TORCH_PYTHON"], *shared, *self.run(job)],
                          {"OMP_NUM_THREADS": "1", **job.env(host)})
        return running


class TorchrunAgain(Torchrun):
    """All processes are started again, on every host, when one has ended."""

    name, command, restarts = "torchrun --max-restarts 2", "torchrun --rdzv-backend c10d --max-restarts 2", 2


class Ssh(Launcher):
    """An sshd in each host, whose only key was made for this test."""

    packages = ("openssh-server", "openssh-client", "openmpi-bin")

    def prepare(self):
        here = self.network.shared
        self.settings, self.hostfile = here / "ssh_config", here / "hostfile"
        self.hostfile.write_text("".join(f"{host.name} slots={self.per_host}\n" for host in self.hosts))
        if self.settings.exists():
            return
        for key in ("host_key", "own_key"):
            call("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", here / key)
        shutil.copy(here / "own_key.pub", here / "authorized")
        self.settings.write_text(f"IdentityFile {here}/own_key\nUserKnownHostsFile {here}/known\nLogLevel ERROR\n"
                                 "StrictHostKeyChecking accept-new\nBatchMode yes\n")
        for host in self.hosts:
            settings = here / f"sshd.{host.name}"
            settings.write_text(f"HostKey {here}/host_key\nAuthorizedKeysFile {here}/authorized\nUsePAM no\n"
                                f"ListenAddress {host.address}\nPasswordAuthentication no\nPidFile none\n"
                                "KbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n"
                                "AcceptEnv SEEKSIM_* LD_PRELOAD FAKETIME*\n")
            host.call("/usr/sbin/sshd", "-f", settings)

    def mpirun(self):
        """Open MPI over the hosts' own network alone, never by shared memory."""
        return ["mpirun", "--hostfile", str(self.hostfile), "--map-by", f"ppr:{self.per_host}:node",
                "--mca", "btl", "tcp,self", "--mca", "pml", "ob1", "--mca", "btl_tcp_if_include", "eth0",
                "--mca", "oob_tcp_if_include", "eth0"]

    def environment(self, host, job):
        return {"OMPI_MCA_plm_rsh_agent": f"ssh -F {self.settings}", **job.env(host)}


class Mpirun(Ssh):
    name, command = "mpirun", "mpirun --hostfile HOSTS, over ssh"

    def start(self, job):
        running = Running(self.network)
        words = [*self.mpirun(), "--allow-run-as-root", "--oversubscribe", "-np", self.ranks, *self.run(job)]
        running.start(self.hosts[0], words, self.environment(self.hosts[0], job))
        return running


class Launch(Ssh):
    name, command = "launch", 'seeksim launch --address HOST --mpirun "mpirun --hostfile HOSTS"'

    def start(self, job):
        running = Running(self.network)
        words = [self.program, "launch", "--max-restarts", "2", "--heartbeat", "0.2", "--silent", "3",
                 "--start-limit", "120", "--address", self.hosts[0].address, "--mpirun", " ".join(self.mpirun()),
                 *job.launched, job.scenario, *self.world(), *job.more]
        running.start(self.hosts[0], words, self.environment(self.hosts[0], job))
        return running


class Srun(Launcher):
    """Slurm: slurmctld on the first host, slurmd on each, munge for who is who."""

    name, command = "srun", "srun --mpi=pmix"
    packages = ("slurmctld", "slurmd", "slurm-client", "munge", "openmpi-bin")
    settings = """ClusterName=hosts
SlurmctldHost={first}
SlurmUser=root
AuthType=auth/munge
CryptoType=crypto/munge
StateSaveLocation=/run/slurm/state
SlurmdSpoolDir=/run/slurm/spool
SlurmctldPidFile=/run/slurm/slurmctld.pid
SlurmdPidFile=/run/slurm/slurmd.pid
SlurmctldLogFile=/run/slurm/slurmctld.log
SlurmdLogFile=/run/slurm/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=pmix
NodeName=node[1-{hosts}] CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""

    def prepare(self):
        here = self.network.shared
        self.env = {"SLURM_CONF": str(here / "slurm.conf"), "OMPI_MCA_btl": "tcp,self", "OMPI_MCA_pml": "ob1",
                    "OMPI_MCA_btl_tcp_if_include": "eth0"}
        if (here / "slurm.conf").exists():
            return
        (here / "slurm.conf").write_text(
            self.settings.format(first=self.hosts[0].name, hosts=len(self.hosts), cpus=self.per_host))
        # Nothing is held in cgroups; the plugin that finds that out by itself wants systemd.
        (here / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        (here / "munge.key").write_bytes(secrets.token_bytes(128))
        (here / "munge.key").chmod(0o400)
        for host in self.hosts:
            host.call("munged", "--force", "--key-file", here / "munge.key", "--pid-file", "/run/munge/munged.pid",
                      "--log-file", "/run/munge/munged.log", "--seed-file", "/run/munge/munged.seed")
        env = {**os.environ, **self.env}
        self.hosts[0].call("slurmctld", env=env)
        for host in self.hosts:
            host.call("slurmd", "-N", host.name, env=env)

    def start(self, job):
        running = Running(self.network)
        words = ["srun", "-N", len(self.hosts), f"--ntasks-per-node={self.per_host}", "--mpi=pmix", "--kill-on-bad-exit=1",
                 *self.run(job)]
        running.start(self.hosts[0], words, {**self.env, **job.env(self.hosts[0])})
        return running
