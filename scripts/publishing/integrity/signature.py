"""Sign a folder with a person's key, or keyless by their login, and say whether a folder is what somebody signed.

The format is that of OpenSSF Model Signing, written and read by its own library, so that others verify it as well.
"""

import getpass
import os
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qkv.scripts.common.extras import load
from qkv.scripts.common.files import file_hash, regular_bytes, sync
from qkv.scripts.publishing.hub.options import KEYLESS
from qkv.scripts.publishing.integrity.bundle import SIGNATURE, digests, is_keyless
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.manifest import brief

PASSWORD = "QKV_KEY_PASSWORD"
CHECK = "signature"
# At the top of a folder: what git and the Hub's client keep there, which no loading reads.
TOOLS = (".git", ".gitattributes", ".github", ".gitignore", ".cache")


class SignedFiles:
    """Hash the files of a folder for the library, which asks for it only once a signature itself is right."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.asked = folder, False

    def hash(self, folder: Path, **_: Any) -> Any:
        """Return the hashes of all files that a signature covers."""
        self.asked = True
        # Links to files, as the cache of the Hub's client has them. What is ignored is written down for other programs.
        config = load("model_signing.hashing").Config().set_allow_symlinks(True)
        config.set_ignored_paths(paths=[SIGNATURE, ".cache"])
        return config.hash(self.folder, files_to_hash=covered(self.folder))

    def add_ignored_paths(self, **_: Any) -> None:
        """Ignore nothing more, whatever the signature asks for."""


def covered(folder: Path) -> list[Path]:
    """Return every file of a folder, and every link, but for the signature and the files of tools."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    ours = (path for path in paths if path.relative_to(folder).parts[0] not in TOOLS)
    return sorted(path for path in ours if path != folder / SIGNATURE)


@dataclass(frozen=True)
class Signer:
    """The library's signer, and the public key in PEM of one that has any."""

    config: Any
    public: bytes | None = None

    def sign(self, folder: Path, target: Path) -> None:
        """Write the signature of a folder, whole or not at all."""
        partial = target.with_name(f"{target.name}.partial")
        try:
            self.config.set_hashing_config(SignedFiles(folder)).sign(folder, partial)
            sync(partial)
            partial.replace(target)
        finally:
            partial.unlink(missing_ok=True)

    def made(self, path: Path, folder: Path) -> bool:
        """Return whether a signature is of this key, over all files of a folder: a new one would be another."""
        if self.public is None:
            return False
        with tempfile.TemporaryDirectory() as name:
            key = Path(name) / "key.pub"
            key.write_bytes(self.public)
            verifier = load("model_signing.verifying").Config().use_elliptic_key_verifier(public_key=key)
            try:
                verifier.set_hashing_config(SignedFiles(folder)).verify(folder, path)
            except Exception:  # a damaged file may lead the library to any
                return False
        return True


def signer(who: str | os.PathLike[str]) -> Signer:
    """Return who signs: a private key in a PEM file, or keyless, the login that Sigstore asks for in a browser."""
    config = load("model_signing.signing").Config()
    if os.fspath(who) == KEYLESS:
        return Signer(from_sigstore(config.use_sigstore_signer, use_ambient_credentials=True))
    path = Path(who).expanduser()
    if not path.is_file():
        raise ValueError(
            f"there is no private key at {path}; `openssl ecparam -name prime256v1 -genkey -noout -out FILE` makes one"
        )
    secret = password(path)
    try:
        return Signer(config.use_elliptic_key_signer(private_key=path, password=secret), public_key(path, secret))
    except Exception as error:
        raise ValueError(
            f"{path} cannot sign ({error}); it has to be a private key in PEM, on the curve P-256, P-384 or P-521"
        ) from error


def public_key(path: Path, secret: bytes | None) -> bytes:
    """Return the public key of a private one, in PEM."""
    serialization = load("cryptography.hazmat.primitives.serialization")
    public = serialization.load_pem_private_key(path.read_bytes(), secret).public_key()
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    written: bytes = public.public_bytes(serialization.Encoding.PEM, form)
    return written


def password(path: Path) -> bytes | None:
    """Return the password of an encrypted key: the environment's, or what is typed at a terminal."""
    if b"ENCRYPTED" not in regular_bytes(path):
        return None
    secret = os.environ.get(PASSWORD)
    if secret is None and sys.stdin.isatty():
        secret = getpass.getpass(f"password of {path}: ")
    if secret is None:
        raise ValueError(f"{path} is encrypted; put its password into {PASSWORD}, or sign at a terminal")
    return secret.encode()


def from_sigstore(use: Any, **options: Any) -> Any:
    """Return a signer or verifier of Sigstore, whose roots of trust are fetched first."""
    try:
        return use(**options)
    except Exception as error:
        raise ValueError(
            f"the roots of trust of Sigstore cannot be fetched ({error}); connect to the network, or use a key"
        ) from error


def signature_row(folder: Path, signed_by: str | os.PathLike[str] | None) -> Row:
    """Compare all files of a folder with what somebody signed: the key in a file, or IDENTITY,ISSUER."""
    path = folder / SIGNATURE
    if signed_by is None:
        return Row(CHECK, detail=f"{SIGNATURE}, not compared; name with --signed-by who signed", skipped=True)
    who, verifier = signatory(signed_by)
    if not path.is_file():
        return Row(CHECK, [f"{SIGNATURE} is missing, so nobody signed this; ask for what was signed"])
    files = SignedFiles(folder)
    try:
        if wrong := other_kind(path, signed_by):
            return Row(CHECK, [wrong])
        verifier.set_hashing_config(files).verify(folder, path)
    except Exception as error:  # a damaged file may lead the library to any
        lines = list(differing(folder)) if files.asked else []
        mend = "download it again, or ask for what was signed"
        return Row(CHECK, [f"{brief(lines)}; {mend}" if lines else refusal(error, who)])
    links = [f"{each.name} is a link to a folder, which was not signed" for each in covered(folder) if each.is_dir()]
    return Row(CHECK, links, f"all {len(digests(path))} files are what {who} signed")


def signatory(signed_by: str | os.PathLike[str]) -> tuple[str, Any]:
    """Return how a sentence calls the expected signer, and what verifies their signature."""
    config, text = load("model_signing.verifying").Config(), os.fspath(signed_by)
    if is_key(text):
        path = Path(text).expanduser()
        try:
            return f"the key {path}", config.use_elliptic_key_verifier(public_key=path)
        except Exception as error:
            raise ValueError(
                f"{path} is no public key of a signature ({error}); `openssl pkey -in KEY -pubout` prints that of KEY"
            ) from error
    identity, _, issuer = text.rpartition(",")
    if not identity or not issuer.startswith("https://"):
        raise ValueError(
            f"{text!r} is neither a file with a public key nor IDENTITY,ISSUER, such as "
            "you@example.org,https://accounts.google.com"
        )
    verifier = from_sigstore(config.use_sigstore_verifier, identity=identity, oidc_issuer=issuer)
    return f"{identity} (by {issuer})", verifier


def is_key(signed_by: str | os.PathLike[str]) -> bool:
    """Return whether somebody is named by the file of a key."""
    return Path(signed_by).expanduser().is_file()


def other_kind(path: Path, signed_by: str | os.PathLike[str]) -> str:
    """Return a sentence where a key is expected and the signature is keyless, or the reverse."""
    keyless = is_keyless(path)
    if keyless != is_key(signed_by):
        return ""
    made, name = ("keyless", "IDENTITY,ISSUER") if keyless else ("with a key", "the file of the public key")
    return f"{SIGNATURE} was made {made}; name {name} in place of {os.fspath(signed_by)}, if you know it"


def refusal(error: Exception, who: str) -> str:
    """Return a sentence about a signature that does not hold."""
    if str(error).startswith("Key mismatch"):
        return f"{SIGNATURE} was made with another key than {who}; trust it only if you know that other key"
    if {"InvalidSignature", "VerificationError"} & {kind.__name__ for kind in type(error).__mro__}:
        return f"{SIGNATURE} was not made by {who}, or was changed since; download it again, or do not trust it"
    return f"{SIGNATURE} is damaged ({type(error).__name__}: {brief(str(error).splitlines(), 1)}); download it again"


def differing(folder: Path) -> Iterator[str]:
    """Yield the files of a folder that are not those that were signed."""
    signed = digests(folder / SIGNATURE)
    present = {path.relative_to(folder).as_posix(): path for path in covered(folder)}
    yield from (f"{name} was signed and is missing" for name in sorted(signed.keys() - present.keys()))
    for name, path in present.items():
        if name not in signed:
            yield f"{name} was not signed"
        elif not path.is_file() or file_hash(path) != signed[name]:
            yield f"{name} has other content than was signed"
