"""Read the file of a signature: what it says, which holds only once the signature itself was verified."""

import base64
import json
from pathlib import Path
from typing import Any

SIGNATURE = "model.sig"


def statement(path: Path) -> dict[str, Any]:
    """Return the signed statement in a signature; ValueError for a file that is none."""
    try:
        signed = json.loads(base64.b64decode(bundle(path)["dsseEnvelope"]["payload"], validate=True))
    except (ValueError, LookupError, TypeError, RecursionError):
        signed = None
    if not isinstance(signed, dict):
        raise ValueError(f"{path.name} is no signature, or damaged; download it again")
    return signed


def bundle(path: Path) -> dict[str, Any]:
    """Return the JSON values of a signature."""
    values: dict[str, Any] = json.loads(path.read_bytes())
    return values


def is_keyless(path: Path) -> bool:
    """Return whether a signature has a certificate, as Sigstore gives them, in place of a key."""
    return "publicKey" not in bundle(path)["verificationMaterial"]


def digests(path: Path) -> dict[str, str]:
    """Return {file: SHA-256} of what was signed."""
    return {row["name"]: row["digest"] for row in statement(path)["predicate"]["resources"]}
