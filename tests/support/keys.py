"""Keys of people who sign, made for a test."""

from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)


def pair(folder: Path, name: str = "alice", password: str = "", key: Any = None) -> tuple[Path, Path]:
    """A private key and its public one, in PEM files."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    hidden = BestAvailableEncryption(password.encode()) if password else NoEncryption()
    files = folder / f"{name}.pem", folder / f"{name}.pub"
    files[0].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hidden))
    files[1].write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return files
