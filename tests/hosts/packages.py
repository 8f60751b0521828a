"""What the tests need of Debian. Root gets it installed; all others are told what is missing."""

import os
import pathlib
import shutil
import subprocess
import sys

ALWAYS = ("iproute2", "util-linux", "procps")
NO_SERVICES = pathlib.Path("/usr/sbin/policy-rc.d")


def not_installed(names):
    done = subprocess.run(["dpkg-query", "-W", "-f", "${db:Status-Status}=${Package}\n", *names], text=True,
                          capture_output=True)
    return [name for name in names if f"installed={name}" not in done.stdout.split()]


def install(names):
    """Installs them; no daemon that comes with them is started on this machine."""
    made = not NO_SERVICES.exists()
    if made:
        NO_SERVICES.write_text("#!/bin/sh\nexit 101\n")
        NO_SERVICES.chmod(0o755)
    try:
        env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update"], env=env, stdin=subprocess.DEVNULL, capture_output=True)
        words = ["apt-get", "install", "-y", "--no-install-recommends", "--no-remove", *names]
        print(f"seeksim: installing: {' '.join(words)}", file=sys.stderr)
        done = subprocess.run(words, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(done.stderr[-2000:], file=sys.stderr)
    finally:
        if made:
            NO_SERVICES.unlink()


def obtain(cases):
    """Installs what is missing and can be had. Returns why nothing can run here (empty: something can), and the packages
    that are still missing."""
    if os.geteuid() != 0:
        return "they make namespaces, which takes root", set()
    if shutil.which("dpkg-query") is None or shutil.which("apt-get") is None:
        return "they know how to get what they need on Debian only", set()
    wanted = set(ALWAYS)
    for case in cases:
        wanted.update(case.packages)
    lacking = not_installed(sorted(wanted))
    if lacking and os.environ.get("SEEKSIM_NO_INSTALL") != "1":
        install(lacking)
        lacking = not_installed(sorted(wanted))
    first = sorted(set(lacking) & set(ALWAYS))
    return f"packages are missing: {' '.join(first)}" if first else "", set(lacking)
