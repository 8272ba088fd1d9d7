"""Decompression of LZ4 frames, which the standard library lacks.

Source: lz4 frame format 1.6 and block format, github.com/lz4/lz4/tree/dev/doc
"""

MAGIC_AND_FLAGS = 7
HAS_BLOCK_CHECKSUM, HAS_SIZE, HAS_DICTIONARY = 0x10, 0x08, 0x01
IS_STORED = 1 << 31
SHORTEST_MATCH = 4


def decompress(frame: bytes) -> bytes:
    """The content of one frame; checksums are not looked at, since what comes of it is hashed."""
    flags = frame[4]
    position = MAGIC_AND_FLAGS + (8 if flags & HAS_SIZE else 0) + (4 if flags & HAS_DICTIONARY else 0)
    out = bytearray()
    while word := int.from_bytes(frame[position : position + 4], "little"):
        start, end = position + 4, position + 4 + (word & ~IS_STORED)
        if word & IS_STORED:
            out += frame[start:end]
        else:
            add_block(out, frame[start:end])
        position = end + (4 if flags & HAS_BLOCK_CHECKSUM else 0)
    return bytes(out)


def add_block(out: bytearray, block: bytes) -> None:
    """Append what a block holds: literal bytes and copies of earlier ones in turn, literals last."""
    position = 0
    while position < len(block):
        token = block[position]
        count, position = length(block, position + 1, token >> 4)
        out += block[position : position + count]
        position += count
        if position < len(block):
            distance = int.from_bytes(block[position : position + 2], "little")
            count, position = length(block, position + 2, token & 15)
            repeat(out, distance, count + SHORTEST_MATCH)


def length(block: bytes, position: int, begun: int) -> tuple[int, int]:
    """A number that goes on in the next bytes as long as they are full, and the position after it."""
    total, more = begun, begun == 15
    while more:
        total += block[position]
        more = block[position] == 255
        position += 1
    return total, position


def repeat(out: bytearray, distance: int, count: int) -> None:
    """Append the bytes from that far back, over and over if they are fewer."""
    pattern = bytes(out[len(out) - distance :])
    out += (pattern * (count // distance + 1))[:count]
