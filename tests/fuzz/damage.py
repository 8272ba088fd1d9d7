"""Changes of a file: of its bytes, or of the values of its JSON; each follows from a seed, a kind and a number."""

import json
import random
from typing import Any

WORDS = [
    b"", b"0", b"-1", b"NaN", b"1e999", b"99999999999999999999", b"null", b"true", b"[]", b"{}", b'"', b"\x00", b"\xff",
    b"\n", b",", b"../", b"/dev/zero", b"!!python/object/apply:os.system", b"\\u0000", b"a" * 5000, b"[" * 3000, b"&a", b"*a",
    b": ", b"\r", b"\xef\xbb\xbf", b"\xff\xfe",
]  # fmt: skip
VALUES = [
    None, True, 0, -1, 1, 2, 3, 10**6, 10**18, -(10**18), 0.5, float("nan"), "", "x", "/etc/passwd", "../x", [], {},
]  # fmt: skip


def changed(whole: bytes, name: str, *, as_json: bool) -> bytes:
    """Change a file, by a seed that is a name."""
    chance = random.Random(name)
    if not as_json:
        return damaged(whole, chance)
    value = json.loads(whole)
    for _ in range(chance.choice((1, 1, 2, 3))):  # one alone is soon the same again
        value = mutated(value, chance)
    return json.dumps(value).encode()


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Flip, cut, repeat, replace: one to four times, often at the beginning, where headers are."""
    for _ in range(chance.randint(1, 4)):
        where = chance.randrange(len(data) + 1) if chance.random() < 0.5 else chance.randrange(min(len(data), 64) + 1)
        length = chance.choice((1, 1, 2, 4, 8, chance.randrange(len(data) + 1)))
        kind = chance.randrange(5)
        if kind == 0:
            data = data[:where] + chance.randbytes(min(length, 16)) + data[where + min(length, 16) :]
        elif kind == 1:
            data = data[:where] + data[where + length :]
        elif kind == 2:
            data = data[:where] + data[where : where + length] + data[where:]
        elif kind == 3:
            data = data[:where] + chance.choice(WORDS) + data[where + length :]
        else:
            data = data[:where]
    return data


def mutated(value: Any, chance: random.Random) -> Any:
    """Change one value of JSON, a key of it, or what is below it."""
    if isinstance(value, dict) and value and chance.random() < 0.8:
        key = chance.choice(sorted(value))
        mutant = {**value, key: mutated(value[key], chance)}
        if chance.random() < 0.1:
            mutant[chance.choice([key.upper(), key + "_", "", "attn_implementation"])] = mutant.pop(key)
        return mutant
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        return [*value[:at], mutated(value[at], chance), *value[at + 1 :]]
    return chance.choice([*VALUES, [value], {"a": value}])
