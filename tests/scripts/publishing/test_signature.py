"""A signature tells who signed which files: whatever is changed, added or removed afterwards is named."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from model_signing import hashing, signing, verifying

import keys
from published import change_json, flip, forge, ours, published
from qkv.scripts.publishing.hub.options import KEYLESS
from qkv.scripts.publishing.integrity.manifest import MANIFEST, SIGNATURE, IntegrityError, Row, write_manifest
from qkv.scripts.publishing.integrity.signature import PASSWORD, covered, sign, signature_row, signer
from qkv.scripts.publishing.integrity.verification import checks, verify

NOBODY = "nobody@example.org,https://accounts.google.com"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two people's keys, and a folder that the first has signed."""
    place = tmp_path_factory.mktemp("signed")
    for name in ("alice", "mallory"):
        keys.pair(place, name)
    folder = published(ours(), place / "model", **{"modeling_decoder.py": "x = 1\n", "vocab.txt": "a\nb\n"})
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "short.jinja").write_text("{{ messages }}\n")
    write_manifest(folder, ours())
    sign(signer(place / "alice.pem"), folder)
    return place


@pytest.fixture
def alice(place: Path) -> Path:
    return place / "alice.pub"


@pytest.fixture
def signed(place: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(place / "model", tmp_path / "hub"))


def found(folder: Path, who: Any) -> str:
    """The one finding about a signature."""
    (finding,) = signature_row(folder, who).findings
    return finding


def test_an_untouched_folder_passes_with_the_files_of_tools(signed: Path, alice: Path) -> None:
    for name in (".gitattributes", ".git/config", ".cache/huggingface/download/config.json.lock"):
        (signed / name).parent.mkdir(parents=True, exist_ok=True)
        (signed / name).touch()
    assert signature_row(signed, alice).findings == [] and signature_row(signed, None).skipped
    names = {path.relative_to(signed).as_posix() for path in covered(signed)}
    assert {MANIFEST, "README.md", "additional_chat_templates/short.jinja"} <= names and SIGNATURE not in names


def forge_manifest(folder: Path) -> None:
    """The way of an attacker who can change all files, which a manifest alone cannot tell."""
    change_json(folder / "config.json", layer_norm_eps=0.5)
    forge(folder)


def link_folder(folder: Path) -> None:
    shutil.rmtree(folder / "additional_chat_templates")
    (folder / "additional_chat_templates").symlink_to(folder.parent)


def replace_payload(folder: Path) -> None:
    """Another list of files under the old signature."""
    flip(folder / "vocab.txt", 0)
    values, other = json.loads((folder / SIGNATURE).read_text()), folder.parent / "other"
    shutil.copytree(folder, other)
    sign(signer(keys.pair(folder.parent, "other")[0]), other)
    values["dsseEnvelope"]["payload"] = json.loads((other / SIGNATURE).read_text())["dsseEnvelope"]["payload"]
    (folder / SIGNATURE).write_text(json.dumps(values))


TAMPERING: list[tuple[Callable[[Path], Any], str]] = [
    (forge_manifest, "config.json"),
    (lambda folder: (folder / MANIFEST).unlink(), MANIFEST),
    (lambda folder: (folder / "notes.md").touch(), "notes.md"),
    (lambda folder: (folder / ".hidden.py").touch(), ".hidden.py"),
    (lambda folder: os.mkfifo(folder / "pipe"), SIGNATURE),
    (lambda folder: (folder / "more").symlink_to(folder.parent), "more"),
    (link_folder, "additional_chat_templates/short.jinja"),
    (lambda folder: (folder / SIGNATURE).unlink(), SIGNATURE),
    *((lambda folder, text=text: (folder / SIGNATURE).write_bytes(text), SIGNATURE) for text in (b"{}", b"\xff")),
    (lambda folder: (folder / SIGNATURE).write_text("[" * 100_000), SIGNATURE),
    (replace_payload, SIGNATURE),
]


@pytest.mark.parametrize(("tamper", "name"), TAMPERING)
def test_a_difference_is_named(tamper: Callable[[Path], Any], name: str, signed: Path, alice: Path) -> None:
    tamper(signed)
    assert name in found(signed, alice)


def test_another_signer_is_not_taken_for_the_expected_one(signed: Path, place: Path, alice: Path) -> None:
    sign(signer(place / "mallory.pem"), signed)
    assert str(alice) in found(signed, alice)
    # Mallory may say that the key is that of Alice; his signature is by his own.
    values, hint = (json.loads((folder / SIGNATURE).read_text()) for folder in (signed, place / "model"))
    values["verificationMaterial"] = hint["verificationMaterial"]
    (signed / SIGNATURE).write_text(json.dumps(values))
    assert str(alice) in found(signed, alice)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_is_found(place: Path, data: st.DataObject) -> None:
    """In the signature itself, in places that the library does not read, it may pass: the folder is the signed one."""
    folder = place / "flipped"
    if not folder.exists():
        shutil.copytree(place / "model", folder)
    path = data.draw(st.sampled_from(sorted(path for path in folder.rglob("*") if path.is_file())))
    offset, bit = data.draw(st.integers(0, path.stat().st_size - 1)), 1 << data.draw(st.integers(0, 7))
    flip(path, offset, bit)
    try:
        findings = signature_row(folder, place / "alice.pub").findings
        assert path.name == SIGNATURE or path.name in findings[0]
    finally:
        flip(path, offset, bit)


def test_unsigned_files_are_not_read(signed: Path, alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = "qkv.scripts.publishing.integrity.verification.load_rows"
    monkeypatch.setattr(loads, lambda *_, **__: iter([Row("class")]))
    assert str(alice) in verify(signed, signed_by=alice).sentence and "signature" in verify(signed).sentence
    flip(signed / MANIFEST, 0)
    (row,) = checks(signed, None, trusted=True, signed_by=alice)
    assert row.check == "signature" and row.findings
    with pytest.raises(IntegrityError, match=MANIFEST):
        verify(signed, signed_by=str(alice))


def test_a_cache_of_links_is_read(signed: Path, alice: Path, tmp_path: Path) -> None:
    """The Hub's client keeps files elsewhere, and links to them."""
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate(covered(signed)):
        path.symlink_to(path.rename(tmp_path / "blobs" / str(number)))
    assert signature_row(signed, alice).findings == []
    flip(tmp_path / "blobs" / "0")
    assert found(signed, alice)


def test_other_programs_verify_it_and_sign_for_us(signed: Path, place: Path, alice: Path) -> None:
    """The library's own command, and its interface for programs."""
    verifying.Config().use_elliptic_key_verifier(public_key=alice).verify(signed, signed / SIGNATURE)
    words = [sys.executable, "-m", "model_signing", "verify", "key", signed, "--signature", signed / SIGNATURE]
    assert subprocess.run([*words, "--public_key", alice], capture_output=True).returncode == 0
    (signed / SIGNATURE).unlink()
    signing.Config().use_elliptic_key_signer(private_key=place / "alice.pem").sign(signed, signed / SIGNATURE)
    assert signature_row(signed, alice).findings == []
    ignoring = hashing.Config().set_ignored_paths(paths=["vocab.txt", SIGNATURE])
    config = signing.Config().use_elliptic_key_signer(private_key=place / "alice.pem")
    config.set_hashing_config(ignoring).sign(signed, signed / SIGNATURE)
    assert "vocab.txt" in found(signed, alice), "an ignored file is not signed"


def test_an_encrypted_key_asks_for_its_password(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = keys.pair(tmp_path, password="a long word")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    for word, name in (("", PASSWORD), ("another word", str(private))):
        monkeypatch.setenv(PASSWORD, word) if word else monkeypatch.delenv(PASSWORD, raising=False)
        with pytest.raises(ValueError, match=name):
            signer(private)
    monkeypatch.setenv(PASSWORD, "a long word")
    sign(signer(private), signed)
    assert signature_row(signed, public).findings == []


def test_a_file_that_is_no_key_is_named(place: Path, tmp_path: Path) -> None:
    private, public = keys.pair(tmp_path, "rsa", key=rsa.generate_private_key(65537, 2048))
    for path in (tmp_path / "nowhere.pem", place / "alice.pub", private):
        with pytest.raises(ValueError, match=path.name):
            signer(path)
    for who in (place / "alice.pem", public, Path("alice.pub"), Path("a@example.org,google")):
        with pytest.raises(ValueError, match=who.name):
            signature_row(place / "model", who)


def test_keyless_asks_sigstore_for_the_identity_and_its_issuer(
    signed: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key answers in its place, for there is no network."""
    asked: list[dict[str, Any]] = []

    def signing_with(config: Any, **options: Any) -> Any:
        asked.append(options)
        return config.use_elliptic_key_signer(private_key=place / "alice.pem")

    def verifying_with(config: Any, **options: Any) -> Any:
        asked.append(options)
        return config.use_elliptic_key_verifier(public_key=place / "alice.pub")

    monkeypatch.setattr(signing.Config, "use_sigstore_signer", signing_with)
    monkeypatch.setattr(verifying.Config, "use_sigstore_verifier", verifying_with)
    sign(signer(KEYLESS), signed)
    assert signature_row(signed, NOBODY).findings == []
    identity = {"identity": "nobody@example.org", "oidc_issuer": "https://accounts.google.com"}
    assert asked == [{"use_ambient_credentials": True}, identity]
