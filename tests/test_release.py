"""Releases: one commit gives one set of bytes, with sums, a signature and a bill of materials without paths."""

import gzip
import importlib.util
import json
import os
import subprocess
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Any

import pytest
import tomllib

import keys
from checkout import ROOT

SPEC = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
assert SPEC is not None and SPEC.loader is not None
release: Any = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)
TIME = 1_700_000_000


def pins(path: Path) -> dict[str, str]:
    """{name: version} of a file of requirements."""
    lines = (line.strip() for line in path.read_text(encoding="utf-8").splitlines())
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def test_tools_have_one_version() -> None:
    """The build takes what the tests take, and releases are made by tools of their own versions."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    tested, tools = pins(ROOT / "constraints.txt"), pins(ROOT / ".ci" / "release.txt")
    assert required == [f"setuptools=={tested['setuptools']}"]
    assert {name: tools[name] for name in ("build", "setuptools")} == {
        name: tested[name] for name in ("build", "setuptools")
    }
    assert {"cyclonedx-bom", "sigstore"} <= tools.keys()


@pytest.mark.slow
def test_two_builds_are_the_same_bytes(tmp_path: Path) -> None:
    """In other folders, at other times, whatever the umask; and they hold the package, and nothing of the builder."""
    sides = []
    for umask, name in ((0o022, "one"), (0o077, "a longer name")):
        before = os.umask(umask)
        try:
            sides.append(release.build(tmp_path / name, TIME))
        finally:
            os.umask(before)
        time.sleep(2)  # the least difference that a zip archive can hold
    release.check_equal(*sides)
    (wheel,), (source,) = sides[0].glob("*.whl"), sides[0].glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        assert {"qkv/__init__.py", "qkv/modeling/attention.py", "qkv/scripts/cli.py"} <= set(archive.namelist())
        assert {entry.date_time[0] for entry in archive.infolist()} == {2023}
        assert {entry.external_attr >> 16 & 0o777 for entry in archive.infolist()} <= {0o644, 0o664}
    with tarfile.open(source) as archive:
        members = archive.getmembers()
        assert len(members) > 100 and {(each.uid, each.gid, each.uname, each.mtime) for each in members} == {
            (0, 0, "", TIME)
        }


def sides(place: Path, **files: bytes) -> tuple[Path, Path]:
    """Two folders with the same files."""
    for side in ("one", "other"):
        (place / side).mkdir(parents=True)
        for name, content in files.items():
            (place / side / name).write_bytes(content)
    return place / "one", place / "other"


def test_builds_that_differ_are_no_release(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="nothing"):
        release.check_equal(*sides(tmp_path))
    changes = {"a": lambda file: file.write_bytes(b"2"), "b": Path.unlink, "c": Path.touch}
    for name, change in changes.items():
        one, other = sides(tmp_path / name, a=b"1", b=b"1")
        release.check_equal(one, other)
        change(other / name)
        with pytest.raises(SystemExit, match=f"differ in {name}"):
            release.check_equal(one, other)


def test_a_source_distribution_forgets_its_builder(tmp_path: Path) -> None:
    """Order, times, owners, modes and the clock of gzip."""
    packed = []
    for number, names in enumerate((("a.py", "b.py"), ("b.py", "a.py"))):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = folder / f"x-{number}.tar.gz"
        with gzip.GzipFile(path, "wb", mtime=number) as file, tarfile.open(fileobj=file, mode="w") as archive:
            for name in names:
                (folder / name).write_text(name)
                (folder / name).chmod(0o600 + 0o40 * number)
                archive.add(folder / name, f"x/{name}")
        release.normalize(path, TIME)
        packed.append(path.read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(path) as archive:
        assert [(each.name, each.mode) for each in archive] == [("x/a.py", 0o644), ("x/b.py", 0o644)]
        assert archive.extractfile("x/b.py").read() == b"b.py"


def test_sums_and_signature_are_those_that_common_programs_check(tmp_path: Path) -> None:
    private, public = keys.pair(tmp_path)
    one, _ = sides(tmp_path, **{"a.whl": b"1", "b.tar.gz": b"2"})
    release.write_sums(one)
    release.sign(one / release.SUMS, str(private))
    check = ["openssl", "dgst", "-sha256", "-verify", public, "-signature", "SHA256SUMS.sig", "SHA256SUMS"]

    def statuses() -> list[int]:
        words = (["sha256sum", "--check", "SHA256SUMS"], check)
        return [subprocess.run(each, cwd=one, capture_output=True).returncode for each in words]

    assert statuses() == [0, 0]
    (one / "a.whl").write_bytes(b"3")
    assert statuses() == [1, 0]
    release.write_sums(one)
    assert statuses()[1] == 1


def test_a_bill_of_materials_holds_no_path(tmp_path: Path) -> None:
    path = tmp_path / "qkv.cdx.json"
    path.write_text(json.dumps({"components": [{"purl": "pkg:pypi/numpy@2.4.6"}]}))
    release.check_no_trace(path)
    for trace in ("file:///srv/x.whl", f"{ROOT}/setup.py"):
        path.write_text(json.dumps({"components": [{"url": trace}]}))
        with pytest.raises(SystemExit, match="qkv.cdx.json holds"):
            release.check_no_trace(path)


def test_a_full_folder_and_changed_files_are_no_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "old.whl").touch()
    with pytest.raises(SystemExit, match="is not empty"):
        release.main([str(tmp_path), "--environment", "x"])
    monkeypatch.setattr(release, "output", lambda *words: " M setup.py\n")
    with pytest.raises(SystemExit, match="M setup.py"):
        release.main([str(tmp_path / "new"), "--environment", "x"])
