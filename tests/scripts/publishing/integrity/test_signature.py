"""A signature tells who signed which files: whatever is changed, added or removed afterwards is named."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import given, settings
from hypothesis import strategies as st
from model_signing import signing, verifying

import keys
from published import change_json, forge, ours, published
from qkv.scripts.common.extras import MissingExtraError
from qkv.scripts.publishing.hub.options import KEYLESS
from qkv.scripts.publishing.integrity import signature as module
from qkv.scripts.publishing.integrity.bundle import SIGNATURE, digests, statement
from qkv.scripts.publishing.integrity.files import Row
from qkv.scripts.publishing.integrity.manifest import MANIFEST, IntegrityError, identity, write_manifest
from qkv.scripts.publishing.integrity.signature import PASSWORD, Signer, covered, signature_row, signer
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
    signer(place / "alice.pem").sign(folder, folder / SIGNATURE)
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


def test_an_untouched_folder_is_what_its_signer_signed(signed: Path, alice: Path) -> None:
    row = signature_row(signed, alice)
    assert row.findings == [] and row.detail == f"all {len(covered(signed))} files are what the key {alice} signed"
    names = {path.relative_to(signed).as_posix() for path in signed.rglob("*") if path.is_file()}
    assert digests(signed / SIGNATURE).keys() == names - {SIGNATURE}
    assert {MANIFEST, "README.md", "additional_chat_templates/short.jinja"} <= names


def flip(path: Path, offset: int = -1, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[offset] ^= bit
    path.write_bytes(data)


def forge_manifest(folder: Path) -> None:
    """What whoever can change the files can do, and a manifest alone cannot tell."""
    change_json(folder / "config.json", layer_norm_eps=0.5)
    forge(folder)


def link_folder(folder: Path) -> None:
    shutil.rmtree(folder / "additional_chat_templates")
    (folder / "additional_chat_templates").symlink_to(folder.parent)


def cut(folder: Path) -> None:
    path = folder / SIGNATURE
    path.write_bytes(path.read_bytes()[:-100])


def replace_payload(folder: Path) -> None:
    """Another list of files under the old signature."""
    flip(folder / "vocab.txt", 0)
    values, other = json.loads((folder / SIGNATURE).read_text()), folder.parent / "other"
    shutil.copytree(folder, other)
    private, _ = keys.pair(folder.parent, "other")
    signer(private).sign(other, other / SIGNATURE)
    values["dsseEnvelope"]["payload"] = json.loads((other / SIGNATURE).read_text())["dsseEnvelope"]["payload"]
    (folder / SIGNATURE).write_text(json.dumps(values))


def nest(folder: Path) -> None:
    (folder / SIGNATURE).write_text("[" * 100_000)


CHANGED = "has other content than was signed"
TAMPERING: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: flip(folder / "vocab.txt"), f"vocab.txt {CHANGED}; download it again"),
    (lambda folder: flip(folder / "README.md"), f"README.md {CHANGED}; download it again"),
    (lambda folder: flip(folder / MANIFEST), f"{MANIFEST} {CHANGED}; download it again"),
    (forge_manifest, f"config.json {CHANGED}, {MANIFEST} {CHANGED}; download it again"),
    (lambda folder: (folder / MANIFEST).unlink(), f"{MANIFEST} was signed and is missing; download it again"),
    (lambda folder: (folder / "notes.md").touch(), "notes.md was not signed; download it again"),
    (lambda folder: (folder / "record.json").touch(), "record.json was not signed; download it again"),
    (lambda folder: (folder / ".hidden.py").touch(), ".hidden.py was not signed; download it again"),
    (lambda folder: os.mkfifo(folder / "pipe"), "pipe was not signed; download it again"),
    (lambda folder: (folder / "more").symlink_to(folder.parent), "more is a link to a folder, which was not signed"),
    (
        link_folder,
        "additional_chat_templates/short.jinja was signed and is missing, additional_chat_templates was not signed",
    ),
    (lambda folder: (folder / SIGNATURE).unlink(), f"{SIGNATURE} is missing, so nobody signed this; ask for what was"),
    (lambda folder: (folder / SIGNATURE).write_text(""), f"{SIGNATURE} is damaged (JSONDecodeError: Expecting value"),
    (lambda folder: (folder / SIGNATURE).write_text("{}"), f"{SIGNATURE} is damaged (KeyError: 'verificationMaterial'"),
    (lambda folder: (folder / SIGNATURE).write_bytes(b"\xff"), f"{SIGNATURE} is damaged (UnicodeDecodeError:"),
    (nest, f"{SIGNATURE} is damaged (RecursionError:"),
    (cut, f"{SIGNATURE} is damaged (JSONDecodeError:"),
    (replace_payload, f"{SIGNATURE} was not made by the key {{alice}}, or was changed since; download it again, or do"),
]


@pytest.mark.parametrize(("tamper", "sentence"), TAMPERING)
def test_what_differs_is_named(tamper: Callable[[Path], Any], sentence: str, signed: Path, alice: Path) -> None:
    tamper(signed)
    assert found(signed, alice).startswith(sentence.format(alice=alice))


def test_another_signer_is_not_taken_for_the_expected_one(signed: Path, place: Path) -> None:
    signer(place / "mallory.pem").sign(signed, signed / SIGNATURE)
    key = f"the key {place / 'alice.pub'}"
    assert found(signed, place / "alice.pub").startswith(f"{SIGNATURE} was made with another key than {key}; trust it")
    # Mallory may say that the key is that of Alice; what he signs with is his own.
    values, hint = (json.loads((folder / SIGNATURE).read_text()) for folder in (signed, place / "model"))
    values["verificationMaterial"] = hint["verificationMaterial"]
    (signed / SIGNATURE).write_text(json.dumps(values))
    assert found(signed, place / "alice.pub").startswith(f"{SIGNATURE} was not made by {key}, or was changed since")


def test_the_signature_of_another_folder_is_not_that_of_this_one(place: Path, alice: Path, tmp_path: Path) -> None:
    other = published(ours(seed=1), tmp_path / "other")
    shutil.copy(place / "model" / SIGNATURE, other)
    sentence = found(other, alice)
    assert sentence.startswith("additional_chat_templates/short.jinja was signed and is missing, vocab.txt was signed")
    assert f"of-00004.safetensors {CHANGED}" in sentence


@pytest.fixture(scope="module")
def flipped(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which bytes are flipped, and flipped back."""
    return Path(shutil.copytree(place / "model", tmp_path_factory.mktemp("flipped") / "hub"))


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_any_flipped_byte_is_found(flipped: Path, place: Path, data: st.DataObject) -> None:
    """In every file but the signature: in that, what it says is what it said, or it is refused."""
    paths = sorted(path for path in flipped.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(paths))
    offset = data.draw(st.integers(0, path.stat().st_size - 1))
    said = digests(flipped / SIGNATURE)
    bit = 1 << data.draw(st.integers(0, 7))
    flip(path, offset, bit)
    try:
        row = signature_row(flipped, place / "alice.pub")
        if path.name != SIGNATURE:
            name = path.relative_to(flipped).as_posix()
            assert row.findings == [f"{name} {CHANGED}; download it again, or ask for what was signed"]
        else:
            assert row.findings or digests(path) == said
    finally:
        flip(path, offset, bit)


def test_every_file_is_covered(flipped: Path, place: Path) -> None:
    for path in covered(flipped):
        flip(path, 0)
        assert signature_row(flipped, place / "alice.pub").findings, path
        flip(path, 0)
    assert signature_row(flipped, place / "alice.pub").findings == []


def test_nothing_is_read_that_was_not_signed(signed: Path, alice: Path) -> None:
    rows = islice(checks(signed, None, trusted=True, signed_by=alice), 2)
    assert [row.check for row in rows] == ["signature", "manifest"]
    flip(signed / MANIFEST, 0)
    (row,) = checks(signed, None, trusted=True, signed_by=alice)
    assert row.check == "signature" and row.findings


def test_the_verdict_says_who_signed(signed: Path, alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loads = "qkv.scripts.publishing.integrity.verification.load_rows"
    monkeypatch.setattr(loads, lambda *_, **__: iter([Row("class")]))
    sentence = f"{signed} is what its manifest says, identity {identity(signed)}"
    files = len(covered(signed))
    assert verify(signed, signed_by=alice).sentence == f"{sentence}; all {files} files are what the key {alice} signed"
    assert verify(signed).sentence == f"{sentence}; not run: signature"
    flip(signed / "vocab.txt")
    with pytest.raises(IntegrityError, match=rf"is not what was signed: signature: vocab.txt {CHANGED}; download"):
        verify(signed, signed_by=str(alice))


def test_git_and_the_cache_of_the_hub_are_passed_by(signed: Path, alice: Path) -> None:
    for name in (".gitattributes", ".git/config", ".cache/huggingface/download/config.json.lock"):
        (signed / name).parent.mkdir(parents=True, exist_ok=True)
        (signed / name).touch()
    assert signature_row(signed, alice).findings == []


def test_a_cache_of_links_is_read(signed: Path, alice: Path, tmp_path: Path) -> None:
    """The Hub's client keeps files elsewhere, and links to them."""
    (tmp_path / "blobs").mkdir()
    for number, path in enumerate(covered(signed)):
        blob = path.rename(tmp_path / "blobs" / str(number))
        path.symlink_to(blob)
    assert signature_row(signed, alice).findings == []
    flip(tmp_path / "blobs" / "0")
    assert CHANGED in found(signed, alice)


def test_other_programs_verify_it(signed: Path, place: Path, alice: Path) -> None:
    """The library's own command, and its interface for programs."""
    verifying.Config().use_elliptic_key_verifier(public_key=alice).verify(signed, signed / SIGNATURE)
    words = [sys.executable, "-m", "model_signing", "verify", "key", signed, "--signature", signed / SIGNATURE]
    assert subprocess.run([*words, "--public_key", alice], capture_output=True).returncode == 0
    with pytest.raises(ValueError, match="Key mismatch"):
        verifying.Config().use_elliptic_key_verifier(public_key=place / "mallory.pub").verify(
            signed, signed / SIGNATURE
        )


def test_what_other_programs_signed_is_verified(signed: Path, place: Path, alice: Path) -> None:
    (signed / SIGNATURE).unlink()
    config = signing.Config().use_elliptic_key_signer(private_key=place / "alice.pem")
    config.sign(signed, signed / SIGNATURE)
    assert signature_row(signed, alice).findings == []


def test_what_a_signature_leaves_out_was_not_signed(signed: Path, place: Path, alice: Path) -> None:
    from model_signing import hashing

    ignoring = hashing.Config().set_ignored_paths(paths=["vocab.txt", SIGNATURE])
    config = signing.Config().use_elliptic_key_signer(private_key=place / "alice.pem")
    config.set_hashing_config(ignoring).sign(signed, signed / SIGNATURE)
    assert found(signed, alice) == "vocab.txt was not signed; download it again, or ask for what was signed"


@pytest.mark.parametrize("curve", [ec.SECP256R1(), ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
def test_keys_of_three_curves_sign(curve: ec.EllipticCurve, signed: Path, tmp_path: Path) -> None:
    private, public = keys.pair(tmp_path, key=ec.generate_private_key(curve))
    signer(private).sign(signed, signed / SIGNATURE)
    assert signature_row(signed, public).findings == []


def test_an_encrypted_key_asks_for_its_password(signed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private, public = keys.pair(tmp_path, password="a long word")
    monkeypatch.delenv(PASSWORD, raising=False)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: False, raising=False)
    with pytest.raises(ValueError, match=f"{private} is encrypted; put its password into {PASSWORD}, or sign at a"):
        signer(private)
    monkeypatch.setenv(PASSWORD, "another word")
    with pytest.raises(ValueError, match=rf"{private} cannot sign \(.*; it has to be a private key in PEM"):
        signer(private)
    monkeypatch.setenv(PASSWORD, "a long word")
    signer(private).sign(signed, signed / SIGNATURE)
    assert signature_row(signed, public).findings == []
    monkeypatch.delenv(PASSWORD)
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(module.getpass, "getpass", lambda prompt: "a long word")
    assert signer(private)


def test_what_is_no_key_is_one_sentence(place: Path, tmp_path: Path) -> None:
    private, public = keys.pair(tmp_path, "rsa", key=rsa.generate_private_key(65537, 2048))
    for path, words in (
        (tmp_path / "nowhere.pem", "there is no private key at"),
        (place / "alice.pub", "alice.pub cannot sign"),
        (private, "rsa.pem cannot sign"),
    ):
        with pytest.raises(ValueError, match=words):
            signer(path)
    for who, words in (
        (place / "alice.pem", "alice.pem is no public key of a signature"),
        (public, "rsa.pub is no public key of a signature"),
        ("alice.pub", "'alice.pub' is neither a file with a public key nor IDENTITY,ISSUER, such as"),
        ("a@example.org,google", "is neither a file with a public key nor IDENTITY,ISSUER"),
    ):
        with pytest.raises(ValueError, match=words):
            signature_row(place / "model", who)


def test_without_the_library_its_extra_is_named(place: Path, alice: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("model_signing", "model_signing.signing", "model_signing.verifying"):
        monkeypatch.setitem(sys.modules, name, None)
    for call in (lambda: signer(place / "alice.pem"), lambda: signature_row(place / "model", alice)):
        with pytest.raises(MissingExtraError, match=r"model-signing is not installed; .* 'qkv\[signing\]'$"):
            call()
    assert signature_row(place / "model", None).skipped


def test_a_failed_signing_leaves_the_old_signature(signed: Path, place: Path, alice: Path) -> None:
    class Broken:
        def set_hashing_config(self, _: Any) -> "Broken":
            return self

        def sign(self, folder: Path, target: Path) -> None:
            target.write_text("half of")
            raise OSError("disk full")

    before = (signed / SIGNATURE).read_bytes()
    with pytest.raises(OSError, match="disk full"):
        Signer(Broken()).sign(signed, signed / SIGNATURE)
    assert (signed / SIGNATURE).read_bytes() == before
    assert signature_row(signed, alice).findings == []


@pytest.fixture
def sigstore(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[list[dict[str, Any]]]:
    """What the library is asked for in place of a key; a key answers, for there is no network."""
    asked: list[dict[str, Any]] = []

    def signing_with(config: Any, **options: Any) -> Any:
        asked.append(options)
        return config.use_elliptic_key_signer(private_key=place / "alice.pem")

    def verifying_with(config: Any, **options: Any) -> Any:
        asked.append(options)
        return config.use_elliptic_key_verifier(public_key=place / "alice.pub")

    monkeypatch.setattr(signing.Config, "use_sigstore_signer", signing_with)
    monkeypatch.setattr(verifying.Config, "use_sigstore_verifier", verifying_with)
    monkeypatch.setattr(module, "is_keyless", lambda path: True)
    yield asked


def test_keyless_asks_sigstore_for_the_identity_and_its_issuer(signed: Path, sigstore: list[dict[str, Any]]) -> None:
    signer(KEYLESS).sign(signed, signed / SIGNATURE)
    row = signature_row(signed, NOBODY)
    assert row.findings == [] and row.detail.endswith("what nobody@example.org (by https://accounts.google.com) signed")
    assert sigstore == [
        {"use_ambient_credentials": True},
        {"identity": "nobody@example.org", "oidc_issuer": "https://accounts.google.com"},
    ]


def test_a_key_and_a_keyless_signature_are_told_apart(
    signed: Path, alice: Path, sigstore: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(signed, alice).startswith(f"{SIGNATURE} was made keyless; name IDENTITY,ISSUER in place of {alice}")
    monkeypatch.undo()
    monkeypatch.setattr(verifying.Config, "use_sigstore_verifier", lambda config, **_: config)
    assert found(signed, NOBODY).startswith(f"{SIGNATURE} was made with a key; name the file of the public key in")


def test_without_a_network_keyless_says_so(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(config: Any, **_: Any) -> None:
        raise ConnectionError("no route to host")

    monkeypatch.setattr(signing.Config, "use_sigstore_signer", unreachable)
    monkeypatch.setattr(verifying.Config, "use_sigstore_verifier", unreachable)
    words = r"the roots of trust of Sigstore cannot be fetched \(no route to host\); connect to the network, or use a"
    with pytest.raises(ValueError, match=words):
        signer(KEYLESS)
    with pytest.raises(ValueError, match=words):
        signature_row(place / "model", NOBODY)


def test_a_signature_names_the_folder_and_nothing_of_the_machine(place: Path) -> None:
    signed = statement(place / "model" / SIGNATURE)
    assert [subject["name"] for subject in signed["subject"]] == ["model"]
    assert str(place) not in json.dumps(signed) and os.environ.get("HOME", "/root") not in json.dumps(signed)
