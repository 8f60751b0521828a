"""What is run, and what has to come of it."""

import dataclasses
import signal

import faults
import launchers
import torch_runs

PASS, CHECK_FAILED, BAD_INPUT, NO_PROGRESS = 0, 1, 2, 3
KILLED = 137
WAITS = "waits"  # the job is over, and its launcher does not know yet


@dataclasses.dataclass
class Case:
    launcher: type
    hosts: int
    fault: faults.Fault = dataclasses.field(default_factory=faults.Fault)
    victim: int = -1  # the host that is struck, by its place in the list; -1: the last
    # Exit statuses: of the job (rank 0's, or the launcher's), and where each rank has one here, of the victim's ranks
    # (each may have any of these).
    status: object = PASS  # None: any but 0
    victims: tuple = ()
    golden: bool = True  # the golden's digest at the end
    says: tuple = ()     # what the job's text holds
    more: tuple = ()     # arguments of `seeksim run`

    @property
    def name(self):
        where = "" if self.victim == -1 or self.fault.name == "none" else ", first host"
        return f"{self.launcher.name} x {self.hosts} hosts x {self.fault.name}{where}"

    @property
    def grace_s(self):
        """How long processes may outlive the job: one that is cut off has to find that out; a stopped one never ends."""
        return 5 if None in self.victims else 120

    def outcome(self, statuses):
        """In words, where all went as expected."""
        words = ["the launcher waits for another host's" if statuses[0] is None else f"status {statuses[0]}"]
        if self.golden:
            words.append("the golden's digest")
        if self.victims:
            ended = statuses[self.victim]
            words.append("the struck rank never ended" if ended is None else f"the struck rank's status {ended}")
        return "; ".join(words + [f"\"{text}\"" for text in self.says])

    @property
    def packages(self):
        return {*self.launcher.packages, *self.fault.packages}

    @property
    def per_host(self):
        return 2 if self.hosts == 2 else 1


HAND, MPIRUN, LAUNCH, SRUN = launchers.ByHand, launchers.Mpirun, launchers.Launch, launchers.Srun
TORCHRUN, AGAIN = launchers.Torchrun, launchers.TorchrunAgain
TORCH, TORCH_TORCHRUN = torch_runs.TorchRun, torch_runs.TorchRunTorchrun
CHECKPOINTS = ("--set", 'checkpoint={"path":"checkpoints","every_steps":3}')
STRIPES = ("--set", "deepspeed.zero_optimization.stage=3")


def loss():
    return faults.Dropped("2 % of packets lost", percent=2)


def partition(heals_after_s=None):
    name = "partition" if heals_after_s is None else f"partition for {heals_after_s} s"
    return faults.Dropped(name, heals_after_s=heals_after_s)


def one_way():
    return faults.Dropped("one direction lost", ways=("output",))


def link_down(heals_after_s=None):
    return faults.LinkDown("link down" if heals_after_s is None else f"link down for {heals_after_s} s", heals_after_s)


def kill():
    return faults.Signalled("kill -9 of a rank", signal.SIGKILL)


def stop():
    return faults.Signalled("kill -STOP of a rank", signal.SIGSTOP)


def rank_killed():
    return faults.Signalled("kill -9 of a script's rank", signal.SIGKILL, names=torch_runs.TorchRun.ranks_are)


def command_killed():
    return faults.Signalled("kill -9 of a host's seeksim", signal.SIGKILL, what="process")


def rank_stopped():
    return faults.Signalled("kill -STOP of a script's rank", signal.SIGSTOP, names=torch_runs.TorchRun.ranks_are)


def pause():
    return faults.Signalled("kill -STOP for 2 s", signal.SIGSTOP, heals_after_s=2)


def delay():
    return faults.Relayed("5 ms of delay each way", "delay", "held", least=5, most=5)


def jitter():
    return faults.Relayed("delay of 0 to 10 ms", "delay", "held", least=0, most=10)


def reorder():
    return faults.Relayed("5 % of packets overtaken", "reorder", "overtaken", one_in=20)


def duplicate():
    return faults.Relayed("10 % of packets twice", "duplicate", "sent twice", one_in=10)


def corrupt(name="1 bit damaged past TCP", **numbers):
    """By default in a full segment. The frames of the control plane are shorter: who loses that one is evicted."""
    numbers = {"after": 6000, "one_in": 20, "most": 1, "both": 0, "least": 1400, **numbers}
    return faults.Relayed(name, "corrupt", "damaged", **numbers)


def corrupt_often():
    return corrupt("1 of 4,000 packets damaged past TCP", one_in=4000, most=1 << 60, both=1, least=1400)


def corrupt_short():
    """Heads of messages, votes, heartbeats."""
    return corrupt("1 bit of a short packet damaged", least=1, upto=250)


# What a job has to be told that its launcher starts again: ranks that are left end, and all go on from the checkpoint.
STARTED_AGAIN = (*CHECKPOINTS, "--resume", "--set", 'recovery.policy="stop"')
RESUMED = ("resumed after step",)
DAMAGED = ("was damaged on its way",)  # a payload, which "arrived corrupt", or a head

CASES = [
    # Equivalence: nothing is broken, and the layout changes no bit.
    Case(HAND, 2), Case(HAND, 4), Case(HAND, 2, more=STRIPES),
    Case(MPIRUN, 2), Case(MPIRUN, 4), Case(LAUNCH, 2), Case(LAUNCH, 4), Case(SRUN, 2), Case(SRUN, 4),
    Case(TORCHRUN, 2), Case(TORCHRUN, 4),
    # Faults that a network gets over by itself.
    Case(HAND, 2, loss()), Case(HAND, 2, link_down(2)), Case(HAND, 2, partition(2)), Case(HAND, 2, faults.Rate()),
    Case(HAND, 2, faults.WallClock()), Case(HAND, 2, pause()),
    Case(MPIRUN, 2, loss()), Case(MPIRUN, 2, link_down(2)), Case(MPIRUN, 2, faults.Rate()), Case(MPIRUN, 2, delay()),
    Case(MPIRUN, 2, corrupt(), says=DAMAGED),
    Case(SRUN, 2, loss()), Case(SRUN, 2, link_down(2)), Case(SRUN, 2, faults.Rate()), Case(SRUN, 2, delay()),
    Case(SRUN, 2, corrupt(), says=DAMAGED),
    Case(TORCHRUN, 2, loss()), Case(TORCHRUN, 2, link_down(2)), Case(TORCHRUN, 2, delay()),
    Case(TORCHRUN, 2, corrupt(), says=DAMAGED),
    Case(HAND, 2, delay()), Case(HAND, 2, jitter()), Case(HAND, 2, reorder()), Case(HAND, 2, duplicate()),
    Case(HAND, 2, corrupt(), says=DAMAGED), Case(HAND, 2, corrupt_short()), Case(HAND, 2, corrupt_often(), says=DAMAGED),
    # Faults that cost ranks: the others go on, and who is cut off ends with a message.
    Case(HAND, 4, kill(), victims=(KILLED,), says=("evicted rank 3",)),
    Case(HAND, 4, stop(), victims=(None,), says=("evicted rank 3",)),
    Case(HAND, 4, link_down(), victims=(NO_PROGRESS,), says=("evicted rank 3",)),
    Case(HAND, 4, partition(), victims=(NO_PROGRESS,), says=("evicted rank 3",)),
    Case(HAND, 4, one_way(), victims=(NO_PROGRESS,), says=("evicted rank 3",)),
    Case(HAND, 2, faults.FullDisk(), says=("saved 0 of 20 checkpoints", "bytes were taken"), more=CHECKPOINTS),
    # Jobs that a supervisor starts again.
    Case(LAUNCH, 2, kill(), says=("has ended", "from the checkpoint after step")),
    Case(LAUNCH, 2, stop(), says=("is silent", "from the checkpoint after step")),
    Case(LAUNCH, 2, link_down(5), says=("from the checkpoint after step",)),
    Case(LAUNCH, 2, link_down(), status=NO_PROGRESS, golden=False, says=("no more restarts",)),
    Case(LAUNCH, 4, kill(), says=("has ended", "from the checkpoint after step")),
    Case(AGAIN, 2, kill(), more=STARTED_AGAIN, says=RESUMED), Case(AGAIN, 4, kill(), more=STARTED_AGAIN, says=RESUMED),
    Case(AGAIN, 2, link_down(2), more=STARTED_AGAIN), Case(AGAIN, 2, stop(), more=STARTED_AGAIN, says=RESUMED),
    # Jobs that nobody starts again: torchrun waits five minutes for the other host's, whatever became of the ranks.
    Case(TORCHRUN, 4, kill(), status=WAITS, says=("evicted rank",)),
    Case(TORCHRUN, 4, link_down(), status=WAITS, says=("evicted rank",)),
    Case(MPIRUN, 2, kill(), status=None, golden=False), Case(SRUN, 2, kill(), status=None, golden=False),
    # Scripts of PyTorch's under seeksim torch: the bits of one host, or the culprit with its host.
    Case(TORCH, 2), Case(TORCH, 4), Case(TORCH_TORCHRUN, 2),
    Case(TORCH, 2, loss()), Case(TORCH, 2, link_down(2)), Case(TORCH, 2, delay()), Case(TORCH, 2, faults.Rate()),
    Case(TORCH, 2, faults.WallClock()),
    Case(TORCH, 2, corrupt(), status=CHECK_FAILED, golden=False, says=DAMAGED),
    Case(TORCH, 2, rank_killed(), status=CHECK_FAILED, golden=False,
         says=("rank 3 on host 1 (node2) died before all_reduce", "of 4 ranks on 2 hosts")),
    Case(TORCH, 2, rank_stopped(), status=NO_PROGRESS, golden=False,
         says=("rank 3 on host 1 (node2) did not join all_reduce",)),
    Case(TORCH, 2, command_killed(), status=CHECK_FAILED, golden=False,
         says=("ranks 2 and 3 on host 1 (node2) died before all_reduce", "2 of 4 ranks on 1 of 2 hosts were seen")),
    Case(TORCH, 2, link_down(), status=NO_PROGRESS, golden=False,
         says=("on host 1 (node2) could not be reached in all_reduce",
               "2 of 4 ranks on 1 of 2 hosts were seen")),
]
