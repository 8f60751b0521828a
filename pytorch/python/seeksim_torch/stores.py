"""The store through which ranks meet, as this process sees it: sockets of one port."""

import os
import socket
from typing import List, Tuple

# Never closed: they stand where the sockets were at which the store listened.
_quiet: List[socket.socket] = []


def _sockets(port: int) -> List[Tuple[int, socket.socket, bool]]:
    """TCP sockets of this process that have this port at either end: descriptor, a copy of it, whether it listens.

    Copies, because the store's own thread closes its sockets as soon as the other end is gone.
    """
    sockets, found = [], []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                sockets.append(int(name))
        except OSError:
            pass  # it was the list's own
    for descriptor in sockets:  # all of them are known before the first copy takes a number
        try:
            one = socket.socket(fileno=os.dup(descriptor))
        except OSError:
            continue  # it is gone
        try:
            tcp = one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM
            listens = bool(one.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
            ends = [one.getsockname()] + ([] if listens else [one.getpeername()]) if tcp else []
        except OSError:
            ends = []  # it was never connected
        if any(end[1] == port for end in ends):
            found.append((descriptor, one, listens))
        else:
            one.close()
    return found


def cut(port: int) -> int:
    """Breaks every connection of this process to the store; where the store itself is here, it hears of nobody any
    more. Returns how many sockets that were."""
    found = _sockets(port)
    for descriptor, copy, listens in found:
        if listens:
            # Another socket in its place, which nobody knows: the store's thread waits there as before.
            nobody = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            nobody.bind("")
            nobody.listen()
            nobody.setblocking(False)
            _quiet.append(nobody)
            os.dup2(nobody.fileno(), descriptor, inheritable=False)
            copy.close()
    for _, copy, listens in found:
        if listens:
            continue
        try:
            copy.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other end was faster
        copy.close()
    return len(found)
