"""The file of a signature, read before anything about it is known."""

import base64
import json
from pathlib import Path

import pytest

from qkv.scripts.publishing.integrity.bundle import SIGNATURE, digests, is_keyless, statement


def written(folder: Path, payload: object, **material: object) -> Path:
    path = folder / SIGNATURE
    encoded = base64.b64encode(json.dumps(payload).encode()).decode()
    path.write_text(json.dumps({"verificationMaterial": material, "dsseEnvelope": {"payload": encoded}}))
    return path


def test_what_was_signed_is_read(tmp_path: Path) -> None:
    path = written(tmp_path, {"predicate": {"resources": [{"name": "a/b.txt", "digest": "00"}]}}, publicKey={})
    assert digests(path) == {"a/b.txt": "00"} and not is_keyless(path)
    assert is_keyless(written(tmp_path, {}, certificate={}))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"dsseEnvelope": 1}',
        '{"dsseEnvelope": {"payload": 1}}',
        '{"dsseEnvelope": {"payload": "%"}}',
    ]
    + ['{"dsseEnvelope": {"payload": "WzFd"}}', "[" * 100_000],
)
def test_what_is_no_signature_is_one_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / SIGNATURE).write_text(text)
    with pytest.raises(ValueError, match="model.sig is no signature, or damaged; download it again"):
        statement(tmp_path / SIGNATURE)
