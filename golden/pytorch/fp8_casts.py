"""Writes fp8/casts.txt: what PyTorch's casts to float8_e4m3fn and float8_e5m2 make of fp32 numbers at every boundary.

A line is a format, the bits of a number and the code that it is cast to, in hexadecimal. The numbers are all values of
the format, the middles between two neighbours, what is one bit below and above each of these, numbers beyond the
largest value, and some at random.
"""

import pathlib
import random
import struct

import torch

FORMATS = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}


def bits_of(value):
    return struct.unpack("<I", struct.pack("<f", value))[0]


def value_of(bits):
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def numbers(dtype):
    codes = torch.arange(128, dtype=torch.uint8).view(dtype).to(torch.float32).tolist()
    finite = sorted(value for value in codes if value == value and value != float("inf"))
    middles = [(low + high) / 2 for low, high in zip(finite, finite[1:])]
    beyond = [finite[-1] * factor for factor in (1.03, 1.035, 1.0357142, 1.0714285, 1.08, 2.0)]
    bits = {bits_of(value) for value in finite + middles + beyond}
    bits |= {bits_of(finite[-1] + (finite[-1] - finite[-2]) / 2)}
    bits |= {one - 1 for one in bits if one > 0} | {one + 1 for one in bits}
    draw = random.Random(8)
    bits |= {draw.randrange(bits_of(finite[-1])) for _ in range(200)}
    bits |= {bits_of(draw.uniform(0, finite[-1])) for _ in range(200)}
    bits |= {0x7F800000, 0x00000001, 0x007FFFFF, 0x7F7FFFFF}
    return sorted(bits | {one | 0x80000000 for one in bits})


def main():
    lines = []
    for name, dtype in FORMATS.items():
        bits = numbers(dtype)
        values = torch.tensor([value_of(one) for one in bits], dtype=torch.float32)
        codes = values.to(dtype).view(torch.uint8).tolist()
        lines += ["%s %08x %02x" % (name, one, code) for one, code in zip(bits, codes)]
    out = pathlib.Path(__file__).parent / "fp8" / "casts.txt"
    out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
