"""Random numbers and number formats that come out the same on every machine.

Values are a counter function of (seed, tensor name, index): splitmix64, then the sum of the four
16-bit lanes, which is close enough to a normal distribution for weights. Only integer arithmetic
and single IEEE operations (one multiplication, one division, one rounding) are used: no libm, and
no sum whose order a library may choose."""
import hashlib

import numpy as np

CHUNK = 1 << 16
# Standard deviation of the sum of four uniform 16-bit integers.
LANES_STD = 37837.22772

F8_MAX = 448.0
F8_NAN = 0x7F


def stream(seed, name):
    """The key of one named stream of numbers."""
    return int.from_bytes(hashlib.sha256(f"{seed}:{name}".encode()).digest()[:8], "little")


def bits(key, count, first=0):
    """Outputs first .. first+count-1 of splitmix64 started at key."""
    z = np.arange(first + 1, first + count + 1, dtype=np.uint64)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(key)
    z ^= z >> np.uint64(30)
    z *= np.uint64(0xBF58476D1CE4E5B9)
    z ^= z >> np.uint64(27)
    z *= np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    return z


def normal(key, shape, std):
    """float32 values of mean 0, at most 3.46 standard deviations away from it."""
    count = int(np.prod(shape))
    out = np.empty(count, dtype=np.float32)
    scale = np.float32(std / LANES_STD)
    even = np.uint64(0x0000FFFF0000FFFF)
    for first in range(0, count, CHUNK):
        z = bits(key, min(CHUNK, count - first), first)
        z = (z & even) + ((z >> np.uint64(16)) & even)
        z = (z >> np.uint64(32)) + (z & np.uint64(0xFFFFFFFF))
        part = z.astype(np.int32)
        part -= 2 * 65535
        np.multiply(part.astype(np.float32), scale, out=out[first:first + part.size])
    return out.reshape(shape)


def uniform(key, shape, low, high):
    """float32 values between low and high."""
    count = int(np.prod(shape))
    part = (bits(key, count) >> np.uint64(40)).astype(np.float32)
    part *= np.float32((high - low) / (1 << 24))
    part += np.float32(low)
    return part.reshape(shape)


def signs(key, shape):
    """+1 or -1, float32."""
    part = (bits(key, int(np.prod(shape))) >> np.uint64(63)).astype(np.float32)
    part *= np.float32(-2.0)
    part += np.float32(1.0)
    return part.reshape(shape)


# ---- number formats ----

def to_bf16(values):
    """float32 to the 16 bits of BF16, to nearest, ties to even."""
    raw = np.ascontiguousarray(values, dtype=np.float32).view(np.uint32)
    return ((raw + (np.uint32(0x7FFF) + ((raw >> np.uint32(16)) & np.uint32(1))))
            >> np.uint32(16)).astype("<u2")


def from_bf16(raw):
    return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)


def to_e4m3(values):
    """float32 to E4M3 codes, to nearest, ties to even, saturating at 448."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    size = np.minimum(np.abs(values), np.float32(F8_MAX))
    raw = size.view(np.uint32)
    normal_code = ((raw + (np.uint32(0x7FFFF) + ((raw >> np.uint32(20)) & np.uint32(1))))
                   >> np.uint32(20)) - np.uint32(120 << 3)
    # Below 2^-6 the step is 2^-9 throughout; 8 steps are the code of 2^-6 itself.
    small_code = np.rint(size * np.float32(512.0)).astype(np.uint32)
    code = np.where(size < np.float32(0.015625), small_code, normal_code).astype(np.uint8)
    return code | (np.signbit(values).astype(np.uint8) << np.uint8(7))


def e4m3_table():
    """The value of every code; the two NaN codes are NaN."""
    table = np.empty(256, dtype=np.float32)
    for code in range(256):
        exponent, mantissa = (code >> 3) & 15, code & 7
        if exponent == 15 and mantissa == 7:
            value = float("nan")
        elif exponent == 0:
            value = mantissa * 2.0 ** -9
        else:
            value = (1 + mantissa / 8) * 2.0 ** (exponent - 7)
        table[code] = -value if code & 0x80 else value
    return table


def blocks_of(matrix, block=128):
    """The matrix padded with zeros to whole blocks, as [block row, row, block column, column]."""
    rows, columns = matrix.shape
    padded_rows, padded_columns = -(-rows // block) * block, -(-columns // block) * block
    if (padded_rows, padded_columns) != (rows, columns):
        whole = np.zeros((padded_rows, padded_columns), dtype=matrix.dtype)
        whole[:rows, :columns] = matrix
        matrix = whole
    return matrix.reshape(padded_rows // block, block, padded_columns // block, block)


def quantise(matrix, scales="BF16"):
    """E4M3 codes and one scale per 128x128 block. The scale is rounded to its own format first,
    so that codes and stored scale belong together."""
    rows, columns = matrix.shape
    blocks = blocks_of(matrix)
    scale = np.abs(blocks).max(axis=(1, 3)) / np.float32(F8_MAX)
    scale[scale == 0] = np.float32(1.0)
    if scales == "BF16":
        scale = from_bf16(to_bf16(scale))
    codes = to_e4m3(blocks / scale[:, None, :, None])
    codes = codes.reshape(blocks.shape[0] * 128, blocks.shape[2] * 128)[:rows, :columns]
    return np.ascontiguousarray(codes), scale


def dequantise(codes, scale):
    rows, columns = codes.shape
    blocks = blocks_of(e4m3_table()[codes]) * scale[:, None, :, None]
    return np.ascontiguousarray(
        blocks.reshape(blocks.shape[0] * 128, blocks.shape[2] * 128)[:rows, :columns])
