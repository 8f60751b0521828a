"""The relay's arithmetic and what it does to frames, on socket pairs in place of devices. Needs no root."""

import os
import random
import socket
import struct
import sys
import threading
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import faults  # noqa: E402
import relay  # noqa: E402


def frame_of(payload, options=b"", padding=0, fragment=0, protocol=relay.TCP, number=7):
    """An Ethernet frame with one TCP segment, all checksums right."""
    tcp = struct.pack("!HHIIBBHHH", 5000, 29400, number, 9, (20 + len(options)) // 4 << 4, 0x18, 512, 0, 0) + options + payload
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + len(tcp), 1, fragment, 64, protocol, 0, bytes([10, 77, 0, 1]),
                     bytes([10, 77, 0, 2]))
    frame = bytearray(b"\x02" * 12 + struct.pack("!H", relay.IPV4) + ip + tcp + b"\xee" * padding)
    segment = relay.Segment(frame)
    if segment:
        struct.pack_into("!H", frame, segment.tcp + 16, segment.checksum_of(frame))
    return bytes(frame)


class Arithmetic(unittest.TestCase):
    def test_the_checksum_is_that_of_the_rfc(self):
        # The example of RFC 1071, section 3: the sum is ddf2.
        self.assertEqual(relay.internet_checksum(bytes.fromhex("0001f203f4f5f6f7")), 0xddf2 ^ 0xffff)
        self.assertEqual(relay.internet_checksum(b"\x12"), 0x1200 ^ 0xffff)

    def test_a_changed_word_changes_the_checksum_as_a_new_sum_does(self):
        chance = random.Random(1)
        for _ in range(2000):
            words = [chance.choice((0, 0xffff, chance.randrange(1 << 16))) for _ in range(6)]
            words[0] |= 1  # a sum of nothing but zeros is another case: no TCP header has it
            before = relay.internet_checksum(struct.pack("!6H", *words))
            at, new = chance.randrange(1, 6), chance.randrange(1 << 16)
            old, words[at] = words[at], new
            self.assertEqual(relay.checksum_after(before, old, new), relay.internet_checksum(struct.pack("!6H", *words)))

    def test_each_bit_can_be_damaged_and_the_checksum_fits(self):
        for payload, options, padding in ((b"x", b"", 5), (b"abcd", b"\1\1\1\1", 0), (bytes(range(33)), b"\1" * 12, 0)):
            frame = frame_of(payload, options, padding)
            segment = relay.Segment(frame)
            self.assertEqual(segment.payload_bytes, len(payload))
            for bit in range(8 * len(payload)):
                other = relay.damaged(frame, segment, bit)
                stored = struct.unpack_from("!H", other, segment.tcp + 16)[0]
                self.assertEqual(stored, segment.checksum_of(other))
                flipped = bytearray(payload)
                flipped[bit // 8] ^= 1 << bit % 8
                self.assertEqual(other[segment.payload:segment.end], bytes(flipped))
                self.assertEqual(other[segment.end:], frame[segment.end:])

    def test_a_checksum_that_is_left_as_it_was_is_seen(self):
        frame = frame_of(b"abcd")
        segment = relay.Segment(frame)
        other = bytearray(frame)
        other[segment.payload] ^= 1
        self.assertNotEqual(struct.unpack_from("!H", other, segment.tcp + 16)[0], segment.checksum_of(other))

    def test_what_is_no_whole_tcp_segment_is_left_alone(self):
        whole = frame_of(b"abcd")
        self.assertTrue(relay.Segment(whole))
        self.assertFalse(relay.Segment(frame_of(b"abcd", fragment=0x2000)))
        self.assertFalse(relay.Segment(frame_of(b"abcd", fragment=0x0010)))
        self.assertFalse(relay.Segment(frame_of(b"abcd", protocol=17)))
        for cut in range(len(whole)):
            self.assertFalse(relay.Segment(whole[:cut]), cut)


class Carried(unittest.TestCase):
    def carry(self, kind, frames, **numbers):
        """What comes out at the other end, and the relay's counts."""
        near, first = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        second, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        done, end = socket.socketpair()
        with near, first, second, far, done, end:
            made = type(kind, (relay.KINDS[kind],), numbers)
            carrier = relay.Relay(first.fileno(), second.fileno(), made, 5)
            thread = threading.Thread(target=carrier.run, args=(done.fileno(),))
            thread.start()
            far.settimeout(0.3)
            came = []
            for frame in frames:
                near.send(frame)
            try:
                while True:
                    came.append(far.recv(relay.MOST_BYTES))
            except TimeoutError:
                pass
            end.close()
            thread.join()
        return came, carrier.counts()

    FRAMES = [frame_of(b"frame %03d" % i, number=(2**32 - 50 + 9 * i) % 2**32) for i in range(100)]

    def test_nothing_is_done_by_one_that_does_nothing(self):
        came, counts = self.carry("nothing", self.FRAMES)
        self.assertEqual(came, self.FRAMES)
        self.assertEqual(counts, {"frames": 100, "touched": 0, "lost": 0})

    def test_a_relay_that_did_nothing_shows_nothing(self):
        fault = faults.Relayed("a fault", "corrupt", "damaged")
        self.assertEqual(fault.words(self.carry("nothing", self.FRAMES)[1]), "")
        self.assertEqual(fault.words(self.carry("corrupt", self.FRAMES, one_in=1, most=2)[1]), "2 of 100 frames damaged")

    def test_delayed_frames_come_in_order(self):
        came, counts = self.carry("delay", self.FRAMES, least=0.0, most=30.0)
        self.assertEqual(came, self.FRAMES)
        self.assertEqual(counts["touched"], 100)

    def test_reordered_frames_come_once_each(self):
        came, counts = self.carry("reorder", self.FRAMES)
        self.assertNotEqual(came, self.FRAMES)
        self.assertEqual(sorted(came), sorted(self.FRAMES))
        self.assertGreater(counts["touched"], 0)

    def test_the_last_frame_is_not_held_for_ever(self):
        came, counts = self.carry("reorder", self.FRAMES[:1], one_in=1)
        self.assertEqual(came, self.FRAMES[:1])
        self.assertEqual(counts["touched"], 0)  # nothing has overtaken it

    def test_duplicates_follow_what_they_repeat(self):
        came, counts = self.carry("duplicate", self.FRAMES)
        self.assertEqual(len(came), 100 + counts["touched"])
        self.assertGreater(counts["touched"], 0)
        self.assertEqual(list(dict.fromkeys(came)), self.FRAMES)

    def test_damaged_frames_differ_and_no_more_than_asked(self):
        came, counts = self.carry("corrupt", self.FRAMES, one_in=5, most=3)
        self.assertEqual(counts["touched"], 3)
        self.assertEqual(sum(a != b for a, b in zip(came, self.FRAMES)), 3)
        for numbers in ({"least": 10}, {"upto": 8}, {"after": 100}):
            came, counts = self.carry("corrupt", self.FRAMES, one_in=1, **numbers)
            self.assertEqual((came, counts["touched"]), (self.FRAMES, 0))

    def test_what_is_sent_again_is_not_damaged(self):
        came, counts = self.carry("corrupt", self.FRAMES[:50] + self.FRAMES, one_in=1, after=50)
        self.assertEqual(came[:100], self.FRAMES[:50] * 2)
        self.assertEqual(counts["touched"], 50)

    def test_the_same_seed_touches_the_same_frames(self):
        once, again = self.carry("corrupt", self.FRAMES)[0], self.carry("corrupt", self.FRAMES)[0]
        self.assertEqual(once, again)
        self.assertNotEqual(once, self.FRAMES)


if __name__ == "__main__":
    unittest.main()
