"""What real networks and machines do to a job. Each fault strikes a host, may heal, and says how it was seen to act."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

from namespaces import call, die_with_parent


class Fault:
    name = "none"
    from_start = False  # it does not wait for the middle of the run
    heals_after_s = None  # it stays
    packages = ()

    def missing(self):
        """Why it cannot be done here; empty: it can."""
        return ""

    def before(self, job, network):
        """What has to be so when the job starts."""

    def strike(self, host):
        pass

    def heal(self, host):
        pass

    def seen(self, host):
        """What shows that the fault acted; empty: nothing does."""
        return "-"

    def after(self, host):
        """Puts the host right again."""


class Dropped(Fault):
    """Packets that nftables drops on their way in or out of a host, counted."""

    packages = ("nftables",)

    def __init__(self, name, percent=100, ways=("input", "output"), heals_after_s=None):
        self.name, self.percent, self.ways, self.heals_after_s = name, percent, ways, heals_after_s

    def strike(self, host):
        host.call("nft", "add table inet faults")
        for way in self.ways:
            at = "iifname" if way == "input" else "oifname"
            host.call("nft", f"add chain inet faults {way} {{ type filter hook {way} priority 0; }}")
            chance = "" if self.percent == 100 else f"numgen random mod 100 < {self.percent}"
            host.call("nft", f"add rule inet faults {way} {at} eth0 {chance} counter drop")

    def heal(self, host):
        self.count = self.packets(host)
        host.call("nft", "delete table inet faults")

    def after(self, host):
        host.call("nft", "flush ruleset")

    def packets(self, host):
        words = host.call("nft", "list table inet faults").split()
        return sum(int(after) for word, after in zip(words, words[1:]) if word == "packets")

    def seen(self, host):
        count = getattr(self, "count", None)
        count = self.packets(host) if count is None else count
        return f"{count} packets dropped" if count else ""


class LinkDown(Fault):
    def __init__(self, name, heals_after_s=None):
        self.name, self.heals_after_s = name, heals_after_s

    def strike(self, host):
        call("ip", "link", "set", host.link, "down")
        self.carrier = host.call("cat", "/sys/class/net/eth0/operstate").strip()

    def heal(self, host):
        call("ip", "link", "set", host.link, "up")

    def seen(self, host):
        return f"eth0 was {self.carrier}" if self.carrier != "up" else ""

    def after(self, host):
        call("ip", "link", "set", host.link, "up")


class Rate(Fault):
    name = "rate of 20 Mbit/s"
    from_start = True

    def missing(self):
        return "" if shutil.which("tc") else "there is no tc"

    def strike(self, host):
        call("tc", "qdisc", "add", "dev", host.link, "root", "tbf", "rate", "20mbit", "burst", "16kb", "latency", "50ms")

    def seen(self, host):
        words = call("tc", "-s", "qdisc", "show", "dev", host.link).replace(",", " ").split()
        held = int(words[words.index("overlimits") + 1])
        return f"{held} packets held back" if held else ""

    def after(self, host):
        call("tc", "qdisc", "del", "dev", host.link, "root")


class Relayed(Fault):
    """A relay (relay.py) between the bridge and the host's link. What it did to frames, it counts."""

    SEED = 11

    from_start = True

    def __init__(self, name, kind, done, **numbers):
        self.name, self.kind, self.done, self.numbers = name, kind, done, numbers
        self.process = None

    def missing(self):
        return "" if os.path.exists("/dev/net/tun") else "there is no /dev/net/tun"

    def strike(self, host):
        program = pathlib.Path(__file__).with_name("relay.py")
        words = [sys.executable, program, "to-bridge", "to-host", self.kind, self.SEED]
        words += [f"{key}={value}" for key, value in self.numbers.items()]
        self.process = subprocess.Popen([str(word) for word in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, preexec_fn=die_with_parent)
        if self.process.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{self.name}: the relay does not start")
        call("ip", "link", "add", "beyond", "type", "bridge")
        for device, bridge in (("to-bridge", "bridge"), ("to-host", "beyond"), (host.link, "beyond")):
            call("ip", "link", "set", device, "master", bridge, "up")
        call("ip", "link", "set", "beyond", "up")

    def seen(self, host):
        """Ends the relay: what it did before is what counts."""
        call("ip", "link", "set", host.link, "master", "bridge")
        told, _ = self.process.communicate()
        return self.words(json.loads(told))

    def words(self, counts):
        return f"{counts['touched']:,} of {counts['frames']:,} frames {self.done}" if counts["touched"] else ""

    def after(self, host):
        call("ip", "link", "set", host.link, "master", "bridge")
        self.process.kill()  # its devices go with it
        self.process.wait()
        call("ip", "link", "del", "beyond")


class Signalled(Fault):
    """Strikes one rank's process of the host (or what it is called): the newest that has one of these names."""

    def __init__(self, name, number, heals_after_s=None, names=("seeksim",), what="rank"):
        self.name, self.number, self.heals_after_s, self.pid = name, number, heals_after_s, 0
        self.names, self.what = names, what

    def strike(self, host):
        found = sorted(pid for name in self.names for pid in host.processes(name))
        self.pid = found[-1] if found else 0
        if self.pid:
            os.kill(self.pid, self.number)

    def heal(self, host):
        status = pathlib.Path(f"/proc/{self.pid}/status").read_text().split()
        nsenter = int(status[status.index("PPid:") + 1])  # it has stopped with what it started
        for pid in (self.pid, nsenter):
            os.kill(pid, signal.SIGCONT)

    def seen(self, host):
        return f"a {self.what} of {host.name} got it" if self.pid else ""


class FullDisk(Fault):
    name = "full disk"
    from_start = True

    def before(self, job, network):
        self.folder = job.out = network.small

    def seen(self, host):
        return host.call("df", "--output=size", self.folder).split()[-1] + " KiB for all"


class WallClock(Fault):
    """libfaketime sets the wall clock of one host an hour ahead. Monotonic clocks go on as they are."""

    name = "wall clock an hour ahead"
    from_start = True
    packages = ("libfaketime",)
    library = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1"

    def before(self, job, network):
        self.env = {"LD_PRELOAD": self.library, "FAKETIME": "+1h", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}
        job.env_of = {network.hosts[-1].name: self.env}

    def seen(self, host):
        ahead = int(host.call("env", *[f"{key}={value}" for key, value in self.env.items()], "date", "+%s"))
        seconds = ahead - int(host.call("date", "+%s"))
        return f"date is {seconds} s ahead" if seconds > 3000 else ""
