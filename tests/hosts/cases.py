"""What is run, and what has to come of it."""

import dataclasses
import signal

import faults
import launchers

PASS, BAD_INPUT, NO_PROGRESS = 0, 2, 3
KILLED = 137


@dataclasses.dataclass
class Case:
    launcher: type
    hosts: int
    fault: faults.Fault = dataclasses.field(default_factory=faults.Fault)
    victim: int = -1  # the host that is struck, by its place in the list; -1: the last
    # Exit statuses: of the job (rank 0's, or the launcher's), and where each rank has one here, of the victim's ranks
    # (each may have any of these).
    status: int = PASS
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
        words = [f"status {statuses[0]}"]
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


HAND, MPIRUN, LAUNCH, SRUN, TORCHRUN = (launchers.ByHand, launchers.Mpirun, launchers.Launch, launchers.Srun,
                                        launchers.Torchrun)
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


def pause():
    return faults.Signalled("kill -STOP for 2 s", signal.SIGSTOP, heals_after_s=2)


CASES = [
    # Equivalence: nothing is broken, and the layout changes no bit.
    Case(HAND, 2), Case(HAND, 4), Case(HAND, 2, more=STRIPES),
    Case(MPIRUN, 2), Case(MPIRUN, 4), Case(LAUNCH, 2), Case(LAUNCH, 4), Case(SRUN, 2), Case(SRUN, 4),
    Case(TORCHRUN, 2), Case(TORCHRUN, 4),
    # Faults that a network gets over by itself.
    Case(HAND, 2, loss()), Case(HAND, 2, link_down(2)), Case(HAND, 2, partition(2)), Case(HAND, 2, faults.Rate()),
    Case(HAND, 2, faults.WallClock()), Case(HAND, 2, pause()),
    Case(MPIRUN, 2, loss()), Case(MPIRUN, 2, link_down(2)), Case(MPIRUN, 2, faults.Rate()),
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
    # Jobs that nobody starts again.
    Case(MPIRUN, 2, kill(), status=None, golden=False), Case(SRUN, 2, kill(), status=None, golden=False),
]
