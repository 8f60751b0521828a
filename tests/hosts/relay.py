#!/usr/bin/env python3
"""A relay between two TAP devices: what it carries it delays, reorders, duplicates or damages, by a seed, and counts.

    relay.py FIRST SECOND KIND SEED [PARAMETER=NUMBER]...

Not every kernel has netem. Besides, netem's damage is found by TCP's checksum and sent again, and so the program never
sees it; the relay makes the checksum right again. It prints "ready" when both devices are there, and its counts, as one
line of JSON, when its standard input ends.
"""

import fcntl
import heapq
import json
import os
import random
import select
import struct
import sys
import time

ETHERNET, IPV4, TCP = 14, 0x0800, 6
MOST_BYTES = 65600


def folded(total):
    """A sum of 16-bit words as ones' complement has it: what is carried out of the top comes in at the bottom."""
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    return total


def internet_checksum(data):
    if len(data) % 2:
        data = bytes(data) + b"\0"
    return folded(sum(struct.unpack(f"!{len(data) // 2}H", data))) ^ 0xffff


def checksum_after(checksum, before, after):
    """The checksum when one 16-bit word of what it covers has changed (RFC 1624, equation 3)."""
    return folded((checksum ^ 0xffff) + (before ^ 0xffff) + after) ^ 0xffff


class Segment:
    """Where things are in an Ethernet frame that holds a TCP segment. False: it holds none, or a fragment of one."""

    def __init__(self, frame):
        self.tcp = self.payload = self.end = 0
        if len(frame) < ETHERNET + 40 or struct.unpack_from("!H", frame, 12)[0] != IPV4 or frame[14] >> 4 != 4:
            return
        self.end = ETHERNET + struct.unpack_from("!H", frame, 16)[0]  # short frames are padded
        fragment = struct.unpack_from("!H", frame, 20)[0] & 0x3fff
        tcp = ETHERNET + (frame[14] & 15) * 4
        if frame[23] != TCP or fragment or self.end > len(frame) or tcp + 20 > self.end:
            return
        payload = tcp + (frame[tcp + 12] >> 4) * 4
        if payload <= self.end:
            self.tcp, self.payload = tcp, payload

    def __bool__(self):
        return self.tcp > 0

    @property
    def payload_bytes(self):
        return self.end - self.payload

    def checksum_of(self, frame):
        """What the segment's checksum has to be."""
        segment = bytearray(frame[self.tcp:self.end])
        segment[16:18] = b"\0\0"
        around = bytes(frame[26:34]) + struct.pack("!HH", TCP, len(segment))  # both addresses
        return internet_checksum(around + bytes(segment))


def damaged(frame, segment, bit):
    """The frame with one bit of the segment's payload flipped, and with a checksum that fits."""
    out = bytearray(frame)
    place = segment.payload + bit // 8
    start = place - (place - segment.tcp) % 2
    word = bytes(out[start:min(start + 2, segment.end)]).ljust(2, b"\0")
    out[place] ^= 1 << bit % 8
    other = bytes(out[start:min(start + 2, segment.end)]).ljust(2, b"\0")
    checksum = struct.unpack_from("!H", out, segment.tcp + 16)[0]
    struct.pack_into("!H", out, segment.tcp + 16,
                     checksum_after(checksum, struct.unpack("!H", word)[0], struct.unpack("!H", other)[0]))
    return bytes(out)


class Way:
    """One direction. `now` is in seconds; `send` gets what leaves."""

    both = 1  # 0: only what comes from the first device is touched

    def __init__(self, chance, send):
        self.chance, self.send = chance, send
        self.seen = self.touched = 0
        self.waiting, self.order, self.last = [], 0, 0.0

    def take(self, frame, now):
        self.seen += 1
        self.pass_on(frame, now)

    def pass_on(self, frame, now):
        self.send(frame)

    def hold(self, frame, until):
        self.order += 1
        heapq.heappush(self.waiting, (until, self.order, frame))

    def release(self, now):
        while self.waiting and self.waiting[0][0] <= now:
            self.send(heapq.heappop(self.waiting)[2])

    def next_release(self):
        return self.waiting[0][0] if self.waiting else None


class Nothing(Way):
    """For a test that has to turn red."""


class Delay(Way):
    """Each frame is held for `least` to `most` milliseconds; none overtakes another."""

    least, most = 5.0, 5.0

    def pass_on(self, frame, now):
        until = now + self.chance.uniform(self.least, self.most) / 1000
        self.last = max(self.last, until)
        self.hold(frame, self.last)

    def release(self, now):
        before = len(self.waiting)
        super().release(now)
        self.touched += before - len(self.waiting)


class Reorder(Way):
    """One frame in `one_in` waits until `behind` others have overtaken it, or for `most` milliseconds."""

    one_in, behind, most = 20, 3, 20.0

    def __init__(self, chance, send):
        super().__init__(chance, send)
        self.held, self.overtaken, self.until = None, 0, 0.0

    def pass_on(self, frame, now):
        if self.held is None and self.chance.random() * self.one_in < 1:
            self.held, self.overtaken, self.until = frame, 0, now + self.most / 1000
            return
        self.send(frame)
        if self.held is not None:
            self.overtaken += 1
            if self.overtaken >= self.behind:
                self.let_go()

    def let_go(self):
        self.touched += self.overtaken > 0
        frame, self.held = self.held, None
        self.send(frame)

    def release(self, now):
        if self.held is not None and now >= self.until:
            self.let_go()

    def next_release(self):
        return self.until if self.held is not None else None


class Duplicate(Way):
    """One frame in `one_in` comes twice."""

    one_in = 10

    def pass_on(self, frame, now):
        self.send(frame)
        if self.chance.random() * self.one_in < 1:
            self.touched += 1
            self.send(frame)


class Corrupt(Way):
    """Flips one bit in one TCP segment of `one_in` that carry `least` to `upto` bytes, `most` times in all.

    The first `after` frames are spared. The segment's checksum is made right, so that TCP delivers it."""

    one_in, least, upto, most, after = 50, 1, MOST_BYTES, 1 << 60, 0

    def __init__(self, chance, send):
        super().__init__(chance, send)
        self.next = {}  # by connection: the number of the byte that comes next

    def is_new(self, frame, segment):
        """Whether the receiver has none of it yet, as far as the relay can see: what is sent again is dropped there."""
        connection = frame[26:34] + frame[segment.tcp:segment.tcp + 4]
        first = struct.unpack_from("!I", frame, segment.tcp + 4)[0]
        new = self.next.get(connection, first) == first
        if new:
            self.next[connection] = (first + segment.payload_bytes) % (1 << 32)
        return new

    def pass_on(self, frame, now):
        segment = Segment(frame) if self.touched < self.most else None
        if segment and segment.payload_bytes > 0 and self.is_new(frame, segment) and self.seen > self.after \
                and self.least <= segment.payload_bytes <= self.upto and self.chance.random() * self.one_in < 1:
            frame = damaged(frame, segment, self.chance.randrange(8 * segment.payload_bytes))
            self.touched += 1
        self.send(frame)


KINDS = {"nothing": Nothing, "delay": Delay, "reorder": Reorder, "duplicate": Duplicate, "corrupt": Corrupt}


class Relay:
    """Carries frames between two descriptors, a frame a read and a frame a write, until `done` can be read."""

    def __init__(self, first, second, make, seed):
        self.lost = 0
        self.ways = {}
        for number, (here, there) in enumerate(((first, second), (second, first))):
            os.set_blocking(here, False)
            kind = make if number < make.both + 1 else Nothing
            self.ways[here] = kind(random.Random(seed * 2 + number), lambda frame, to=there: self.send(to, frame))

    def send(self, to, frame):
        try:
            os.write(to, frame)
        except OSError:  # a device that is full or down loses it, as a wire would
            self.lost += 1

    def patience_s(self):
        moments = [moment for way in self.ways.values() if (moment := way.next_release()) is not None]
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def run(self, done):
        while True:
            ready = select.select([*self.ways, done], [], [], self.patience_s())[0]
            if done in ready:
                return
            for way in self.ways.values():
                way.release(time.monotonic())
            for here in ready:
                self.drain(here)

    def drain(self, here):
        way = self.ways[here]
        for _ in range(64):  # the other direction waits no longer than that
            try:
                frame = os.read(here, MOST_BYTES)
            except BlockingIOError:
                return
            way.take(frame, time.monotonic())

    def counts(self):
        ways = self.ways.values()
        return {"frames": sum(way.seen for way in ways), "touched": sum(way.touched for way in ways), "lost": self.lost}


def tap(name):
    """A new TAP device, which goes when its descriptor does."""
    tun_set_iff, tap_without_header = 0x400454ca, 0x0002 | 0x1000
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, tun_set_iff, struct.pack("16sH22x", name.encode(), tap_without_header))
    return device


def main(first, second, kind, seed, *parameters):
    numbers = {key: float(value) for key, value in (parameter.split("=") for parameter in parameters)}
    unknown = [key for key in numbers if not hasattr(KINDS[kind], key)]
    if unknown:
        raise SystemExit(f"relay: {kind} has no {unknown[0]}")
    made = type(kind, (KINDS[kind],), numbers)
    relay = Relay(tap(first), tap(second), made, int(seed))
    print("ready", flush=True)
    relay.run(0)
    print(json.dumps(relay.counts()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
