"""Hosts on one machine: each has a network, a name, processes, shared memory, /tmp and /etc/hosts of its own.

All of them live inside an outer set of namespaces, which has no way to any other network. Nothing is given a name
that outlives it: when the test ends, or is killed, the kernel ends every process and takes every mount and link away.
"""

import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys

NEW_MOUNT, NEW_UTS, NEW_IPC, NEW_PID, NEW_NET = 0x00020000, 0x04000000, 0x08000000, 0x20000000, 0x40000000
PR_SET_PDEATHSIG = 1
LIBC = ctypes.CDLL(None, use_errno=True)


def call(*words, **more):
    """Runs a tool that has to work."""
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, **more)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, words))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def die_with_parent():
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def status_of(wait_status):
    return os.waitstatus_to_exitcode(wait_status) if os.WIFEXITED(wait_status) else 128 + os.WTERMSIG(wait_status)


def inside_namespaces(work):
    """Calls `work` as a process of the outer namespaces, and returns its exit status. If this process is killed, the
    first one there is, too, and with it go all others."""
    if LIBC.unshare(NEW_MOUNT | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET) != 0:
        raise RuntimeError(f"unshare: {os.strerror(ctypes.get_errno())}")
    first = os.fork()
    if first > 0:
        return status_of(os.waitpid(first, 0)[1])
    die_with_parent()
    worker = os.fork()
    if worker == 0:
        call("mount", "--make-rprivate", "/")
        call("mount", "-t", "proc", "proc", "/proc")
        call("ip", "link", "set", "lo", "up")
        status = work()
        sys.stdout.flush()
        os._exit(status)
    while True:  # the first process of a PID namespace inherits all orphans
        pid, status = os.wait()
        if pid == worker:
            os._exit(status_of(status))


# What becomes of the machine's folders in a host. $1: its name, $2: the shared folder, $3: the checkout.
HOST = r"""
set -eu
mount --make-rprivate /
hostname "$1"
mkdir -p "$2/checkout"
mount --bind "$3" "$2/checkout"
for folder in /dev/shm /tmp /run; do mount -t tmpfs -o mode=1777,size=256m tmpfs "$folder"; done
if ! [ -d "$3" ]; then mkdir -p "$3"; mount --bind "$2/checkout" "$3"; fi
mkdir -p -m 755 /run/sshd /run/munge /run/slurm
mount --bind "$2/hosts" /etc/hosts
mount --bind "$2/shadow" /etc/shadow
mount -t sysfs sysfs /sys 2>/dev/null || true
ip link set lo up
echo ready
while :; do sleep 1000; done
"""


class Host:
    def __init__(self, number, shared, checkout):
        self.number, self.name, self.address = number, f"node{number}", f"10.77.0.{number}"
        self.link = f"to-{self.name}"  # the pair's end on the bridge's side
        self.checkout = checkout
        words = ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc",
                 "bash", "-c", HOST, "host", self.name, str(shared), str(checkout)]
        self.keeper = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=die_with_parent)
        if self.keeper.stdout.readline().strip() != "ready":
            raise RuntimeError(f"{self.name} could not be made")
        keeper = self.keeper.pid
        self.first = int(pathlib.Path(f"/proc/{keeper}/task/{keeper}/children").read_text().split()[0])
        call("ip", "link", "add", self.link, "type", "veth", "peer", "name", "eth0", "netns", self.first)
        call("ip", "link", "set", self.link, "master", "bridge", "up")
        self.call("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.call("ip", "link", "set", "eth0", "up")

    def words(self, words):
        """The command line that runs `words` on this host, in the checkout."""
        return ["nsenter", "--target", str(self.first), "--net", "--uts", "--ipc", "--mount", "--pid", "--",
                "sh", "-c", 'cd "$0" && exec "$@"', str(self.checkout)] + [str(word) for word in words]

    def call(self, *words, **more):
        return call(*self.words(words), **more)

    def start(self, words, output, env=None):
        return subprocess.Popen(self.words(words), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                env={**os.environ, **(env or {})}, preexec_fn=die_with_parent)

    def processes(self, name=None):
        """The processes of this host, or those whose program is called `name`, by their numbers out here, oldest first.

        Those that have ended and were not waited for are none."""
        here = os.readlink(f"/proc/{self.first}/ns/pid")
        found = []
        for folder in pathlib.Path("/proc").iterdir():
            try:
                if folder.name.isdigit() and os.readlink(folder / "ns/pid") == here and \
                        name in (None, (folder / "comm").read_text().strip()) and \
                        "\nState:\tZ" not in (folder / "status").read_text():
                    found.append(int(folder.name))
            except OSError:  # it has ended meanwhile
                continue
        return sorted(found)

    def bytes_crossed(self):
        """What the pair has carried, both ways."""
        stats = json.loads(call("ip", "-s", "-j", "link", "show", "dev", self.link))[0]["stats64"]
        return stats["rx"]["bytes"] + stats["tx"]["bytes"]

    def end(self):
        # The kernel takes a dead host's link away some time later, and the next network may come before.
        call("ip", "link", "del", self.link)
        self.keeper.kill()
        self.keeper.wait()


class Network:
    """`count` hosts on one bridge, and a folder that all of them share as they would a network file system."""

    def __init__(self, count, checkout):
        self.shared = next(place for place in map(pathlib.Path, ("/srv", "/media", "/mnt"))
                           if place.is_dir() and place not in checkout.parents)
        call("mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", self.shared)
        self.small = self.shared / "small"  # a disk that is soon full
        self.small.mkdir()
        call("mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", self.small)
        names = [f"10.77.0.{n} node{n}" for n in range(1, count + 1)]
        (self.shared / "hosts").write_text("127.0.0.1 localhost\n" + "\n".join(names) + "\n")
        # A locked root may not log in, not even with a key.
        (self.shared / "shadow").write_text("root:*:19000:0:99999:7:::\nsshd:*:19000:0:99999:7:::\n")
        (self.shared / "shadow").chmod(0o600)
        call("ip", "link", "add", "bridge", "type", "bridge")
        call("ip", "link", "set", "bridge", "up")
        self.hosts = []
        for number in range(1, count + 1):
            self.hosts.append(Host(number, self.shared, checkout))

    def clear(self):
        """Nothing of a job that has ended is left on the disks."""
        shutil.rmtree(self.shared / "out", ignore_errors=True)
        (self.shared / "report.json").unlink(missing_ok=True)
        for entry in self.small.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def end(self):
        for host in self.hosts:
            host.end()
        call("ip", "link", "del", "bridge")
        call("umount", "--lazy", "--recursive", self.shared)
