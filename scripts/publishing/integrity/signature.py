"""Sign a folder with a key, or keyless with a login, and verify signatures.

The format is that of OpenSSF Model Signing, written and read by its own library, so that others verify it as well.
"""

import getpass
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from qkv.scripts.common.extras import load
from qkv.scripts.publishing.hub.options import KEYLESS
from qkv.scripts.publishing.integrity.manifest import SIGNATURE, Row

PASSWORD = "QKV_KEY_PASSWORD"
CHECK = "signature"
# At the top of a folder: files of git and the Hub's client, which no loading reads.
TOOLS = (".git", ".gitattributes", ".github", ".gitignore", ".cache")


class SignedFiles:
    """Hash all files of a folder for the library, also those that a signature asks to ignore."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def hash(self, folder: Path, **_: Any) -> Any:
        """Return the hashes of all files that a signature covers."""
        # Links to files, as the cache of the Hub's client has them. Ignored paths are written down for other programs.
        config = load("model_signing.hashing").Config().set_allow_symlinks(True)
        config.set_ignored_paths(paths=[SIGNATURE, ".cache"])
        return config.hash(self.folder, files_to_hash=covered(self.folder))

    def add_ignored_paths(self, **_: Any) -> None:
        """Ignore no more paths, even those that the signature lists."""


def covered(folder: Path) -> list[Path]:
    """Return every file of a folder, and every link, but for the signature and the files of tools."""
    paths = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    ours = (path for path in paths if path.relative_to(folder).parts[0] not in TOOLS)
    return sorted(path for path in ours if path != folder / SIGNATURE)


def sign(signer: Any, folder: Path) -> None:
    """Write the signature of a folder."""
    (folder / SIGNATURE).unlink(missing_ok=True)
    signer.set_hashing_config(SignedFiles(folder)).sign(folder, folder / SIGNATURE)


def signer(who: str | os.PathLike[str]) -> Any:
    """Return who signs: a private key in a PEM file, or keyless, the login that Sigstore asks for in a browser."""
    config = load("model_signing.signing").Config()
    if os.fspath(who) == KEYLESS:
        return configured(config.use_sigstore_signer, "Sigstore cannot be used", use_ambient_credentials=True)
    path = Path(who).expanduser()
    if not path.is_file():
        raise ValueError(
            f"there is no private key at {path}; `openssl ecparam -name prime256v1 -genkey -noout -out FILE` makes one"
        )
    reason = f"{path} cannot sign; it has to be a private key in PEM, on the curve P-256, P-384 or P-521"
    return configured(config.use_elliptic_key_signer, reason, private_key=path, password=password(path))


def configured(use: Callable[..., Any], reason: str, **options: Any) -> Any:
    """Return the library's signer or verifier; ValueError with a reason where it cannot be made."""
    try:
        return use(**options)
    except Exception as error:
        raise ValueError(f"{reason} ({error})") from error


def password(path: Path) -> bytes | None:
    """Return the password of an encrypted key, from the environment or typed at a terminal."""
    if b"ENCRYPTED" not in path.read_bytes():
        return None
    secret = os.environ.get(PASSWORD)
    if secret is None and sys.stdin.isatty():
        secret = getpass.getpass(f"password of {path}: ")
    if secret is None:
        raise ValueError(f"{path} is encrypted; put its password into {PASSWORD}, or sign at a terminal")
    return secret.encode()


def signature_row(folder: Path, signed_by: str | os.PathLike[str] | None) -> Row:
    """Compare all files of a folder with its signature by the key in a file, or by IDENTITY,ISSUER."""
    path = folder / SIGNATURE
    if signed_by is None:
        return Row(CHECK, detail=f"{SIGNATURE}, not compared; name with --signed-by who signed", skipped=True)
    who, verifier = signatory(signed_by)
    if not path.is_file():
        return Row(CHECK, [f"{SIGNATURE} is missing, so nobody signed this; ask for what was signed"])
    try:
        verifier.set_hashing_config(SignedFiles(folder)).verify(folder, path)
    except Exception as error:  # a damaged file may lead the library to any
        return Row(CHECK, [f"{SIGNATURE} is not that of {who} on these files ({' '.join(str(error).split())[:500]})"])
    files = covered(folder)
    links = [f"{each.name} is a link to a folder, which was not signed" for each in files if each.is_dir()]
    return Row(CHECK, links, f"all {len(files)} files are what {who} signed")


def signatory(signed_by: str | os.PathLike[str]) -> tuple[str, Any]:
    """Return the name of the expected signer in a sentence, and the library's verifier of their signature."""
    config, text = load("model_signing.verifying").Config(), os.fspath(signed_by)
    path = Path(text).expanduser()
    if path.is_file():
        reason = f"{path} is no public key of a signature; `openssl pkey -in KEY -pubout` prints that of KEY"
        return f"the key {path}", configured(config.use_elliptic_key_verifier, reason, public_key=path)
    identity, _, issuer = text.rpartition(",")
    if not identity or not issuer.startswith("https://"):
        example = "you@example.org,https://accounts.google.com"
        raise ValueError(f"{text!r} is neither a file with a public key nor IDENTITY,ISSUER, such as {example}")
    options = {"identity": identity, "oidc_issuer": issuer}
    return f"{identity} (by {issuer})", configured(config.use_sigstore_verifier, "Sigstore cannot be used", **options)
