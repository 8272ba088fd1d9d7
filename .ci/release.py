"""Make the files of a release from a commit: wheel, source distribution, bill of materials, sums, signature.

`make release` prepares the environments that this runs in and describes. One commit gives one set of bytes: everything
is built twice, and what differs is no release.
"""

import argparse
import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUMS = "SHA256SUMS"


def main(words: Sequence[str] | None = None) -> None:
    """Fill a new folder with the files of a release."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("out", type=Path, help="a folder that is new or empty")
    parser.add_argument("--environment", type=Path, required=True, help="a virtual environment with what users install")
    parser.add_argument("--sign", metavar="KEY", help="a private key in PEM, or `keyless`")
    given = parser.parse_args(words)
    if given.out.is_dir() and any(given.out.iterdir()):
        raise SystemExit(f"{given.out} is not empty; remove it first")
    if changed := output("git", "status", "--porcelain"):
        raise SystemExit(
            f"a release is built from a commit, and these files differ from it:\n{changed}commit them first"
        )
    with tempfile.TemporaryDirectory(prefix="release-") as name:
        built = [build(Path(name) / side, commit_time()) for side in ("one", "other")]
        check_equal(*built)
        describe(given.environment, built[0])
        write_sums(built[0])
        if given.sign:
            sign(built[0] / SUMS, given.sign)
        shutil.copytree(built[0], given.out, dirs_exist_ok=True)


def output(*words: str) -> str:
    """Return what a command prints in the checkout."""
    return subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commit_time() -> int:
    """Return the time of the last commit, which stands for that of the build."""
    return int(output("git", "log", "-1", "--format=%ct"))


def build(place: Path, time: int) -> Path:
    """Build both distributions from a copy of the tracked files, and return the folder with them."""
    source, out = place / "source", place / "dist"
    for name in filter(None, output("git", "ls-files", "-z").split("\0")):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
        (source / name).chmod(0o755 if os.access(ROOT / name, os.X_OK) else 0o644)
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, source]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(time), "PYTHONHASHSEED": "0"}
    done = subprocess.run(words, env=environment, umask=0o022, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stdout}{done.stderr}")
    for path in out.glob("*.tar.gz"):
        normalize(path, time)
    return out


def normalize(path: Path, time: int) -> None:
    """Write a source distribution again without what tells of its builder: order, times, owners and modes."""
    with tarfile.open(path) as old:
        files = {member.name: (member.mode, old.extractfile(member)) for member in old if member.isfile()}
        contents = {name: (mode, file.read()) for name, (mode, file) in files.items() if file}
    # Without a name, which the head of a gzip file would hold.
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=time) as packed:
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as new:
            for name, (mode, content) in sorted(contents.items()):
                member = tarfile.TarInfo(name)
                member.size, member.mtime, member.mode = len(content), time, 0o755 if mode & 0o100 else 0o644
                new.addfile(member, io.BytesIO(content))


def check_equal(one: Path, other: Path) -> None:
    """Stop where two builds are not the same files with the same bytes."""
    sums = [{path.name: file_hash(path) for path in sorted(side.iterdir())} for side in (one, other)]
    differing = sorted(name for name in sums[0].keys() | sums[1].keys() if sums[0].get(name) != sums[1].get(name))
    if differing or not sums[0]:
        raise SystemExit(f"two builds of one commit differ in {', '.join(differing) or 'nothing, for there is none'}")


def describe(environment: Path, out: Path) -> None:
    """Write the bill of materials: what is installed with a release, in the versions that it was tested with."""
    version = next(out.glob("*.whl")).name.split("-")[1]
    path = out / f"qkv-{version}.cdx.json"
    words = [sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible", "--mc-type", "library"]
    command = [*words, "--pyproject", ROOT / "pyproject.toml", "--output-file", path, environment]
    subprocess.run(command, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(commit_time())})
    check_no_trace(path)


def check_no_trace(path: Path) -> None:
    """Stop where a bill of materials holds a path of this machine."""
    places = {str(place) for place in (ROOT, Path.home(), Path(sys.prefix))}
    if traces := re.findall(
        rf'file:[^"]*|{"|".join(map(re.escape, sorted(places)))}', path.read_text(encoding="utf-8")
    ):
        raise SystemExit(f"{path.name} holds {traces[0]}, a path of this machine; install that from an index")


def write_sums(out: Path) -> None:
    """Write the sums that `sha256sum --check` compares."""
    lines = [f"{file_hash(path)}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / SUMS).write_text("".join(lines), encoding="utf-8")


def file_hash(path: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def sign(path: Path, key: str) -> None:
    """Sign a file beside it: with a key, as `openssl dgst -verify` reads it, or keyless, as `sigstore verify` does."""
    if key == "keyless":
        subprocess.run([sys.executable, "-m", "sigstore", "sign", path], check=True)
    else:
        signature = path.with_name(f"{path.name}.sig")
        subprocess.run(["openssl", "dgst", "-sha256", "-sign", key, "-out", signature, path], check=True)


if __name__ == "__main__":
    main()
