#!/usr/bin/env python3
"""minihub - a loopback Hub for tests (stdlib only; PyYAML used if present).

Speaks enough of the Hub's HTTP API for huggingface_hub 2.4 / transformers 5.23 / datasets 5.2:
repos, atomic commits, branches/tags/PRs, git-LFS (single + multipart), Xet CAS, resolve with a
second "CDN" origin, tokens, private/gated repos, error codes, and fault injection.

    python minihub.py --root DIR [--port 0] [--ready-file F] [--token tok=user[:read]] ...

Binds 127.0.0.1 only.  Stops by itself when its parent dies or after --idle seconds without a request.
State: SQLite (one transaction per commit) + content-addressed files (write tmp, fsync, rename).
"""

from __future__ import annotations
import argparse, base64, binascii, hashlib, hmac, json, os, re, secrets, sqlite3, struct, sys, tempfile
import threading, time
from datetime import datetime, timezone
from fnmatch import fnmatch
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, quote, unquote, urlsplit

LFS_PATTERNS = (
    "*.7z *.arrow *.bin *.bz2 *.ckpt *.ftz *.gz *.h5 *.joblib *.lfs.* *.mlmodel *.model *.msgpack *.npy "
    "*.npz *.onnx *.ot *.parquet *.pb *.pickle *.pkl *.pt *.pth *.rar *.safetensors *.tar.* *.tar *.tflite "
    "*.tgz *.wasm *.xz *.zip *.zst *tfevents*"
).split()
GITATTRIBUTES = "".join(f"{p} filter=lfs diff=lfs merge=lfs -text\n" for p in LFS_PATTERNS).encode()
LFS_THRESHOLD = 10 * 1024 * 1024
NAME_RE = re.compile(r"^(?!.*(--|\.\.))[A-Za-z0-9][A-Za-z0-9._-]{0,95}$")
SCHEMA = """
create table if not exists repos(type text, id text, private int, gated text, created text, primary key(type,id));
create table if not exists refs(type text, id text, ref text, sha text, primary key(type,id,ref));
create table if not exists commits(sha text primary key, type text, id text, parent text, tree text,
                                   title text, message text, author text, date text);
create table if not exists discussions(type text, id text, num int, title text, description text, author text,
    status text, is_pr int, base text, created text, merge_sha text, primary key(type,id,num));
create table if not exists access(type text, id text, user text, primary key(type,id,user));
create table if not exists xet_files(hash text primary key, sha256 text, size int, terms text);
create index if not exists xet_sha on xet_files(sha256);
"""


def now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def merkle_hex(b: bytes) -> str:  # xet prints its hashes as four little-endian u64
    return "".join(b[i : i + 8][::-1].hex() for i in range(0, 32, 8))


def lz4_frame(src: bytes) -> bytes:
    try:
        import lz4.frame

        return lz4.frame.decompress(src)
    except ImportError:
        pass
    flg, pos = src[4], 7 + (8 if src[4] & 8 else 0) + (4 if src[4] & 1 else 0)
    out = bytearray()
    while True:
        (n,) = struct.unpack_from("<I", src, pos)
        pos += 4
        if n == 0:
            return bytes(out)
        raw, n = n >> 31, n & 0x7FFFFFFF
        blk = src[pos : pos + n]
        pos += n + (4 if flg & 0x10 else 0)
        if raw:
            out += blk
            continue
        i = 0
        while i < len(blk):
            tok = blk[i]
            i += 1
            lit = tok >> 4
            if lit == 15:
                while True:
                    b = blk[i]
                    i += 1
                    lit += b
                    if b != 255:
                        break
            out += blk[i : i + lit]
            i += lit
            if i >= len(blk):
                break
            off = blk[i] | blk[i + 1] << 8
            i += 2
            ml = tok & 15
            if ml == 15:
                while True:
                    b = blk[i]
                    i += 1
                    ml += b
                    if b != 255:
                        break
            ml += 4
            s = len(out) - off
            if off >= ml:
                out += out[s : s + ml]
            else:
                pat = bytes(out[s:])
                out += (pat * (ml // off + 1))[:ml]


def xet_chunk(kind: int, data: bytes) -> bytes:
    if kind == 0:
        return data
    data = lz4_frame(data)
    if kind == 1:
        return data
    n = len(data)
    split, rem = divmod(n, 4)
    out = bytearray(n)
    p = 0  # 2: four byte planes
    for k in range(4):
        ln = split + (1 if rem > k else 0)
        out[k::4] = data[p : p + ln]
        p += ln
    return bytes(out)


class HubError(Exception):
    def __init__(self, status, message, code=None, headers=None, body=None):
        self.status, self.message, self.code, self.headers, self.body = status, message, code, headers or {}, body


class Hub:
    def __init__(self, root: Path, tokens: dict[str, tuple[str, bool]], orgs: dict[str, list[str]]):
        self.root, self.tokens, self.orgs = root, tokens, orgs
        for d in ("git", "lfs", "parts", "xorbs", "tmp"):
            (root / d).mkdir(parents=True, exist_ok=True)
        self.lock = threading.RLock()
        self.db = sqlite3.connect(root / "hub.db", check_same_thread=False, isolation_level=None)
        self.db.row_factory = sqlite3.Row
        self.db.execute("pragma journal_mode=wal")
        self.db.execute("pragma synchronous=full")
        self.db.executescript(SCHEMA)
        key = root / "key"
        if not key.exists():
            key.write_bytes(secrets.token_bytes(32))
        self.key = key.read_bytes()
        self.faults: list[dict] = []
        self.log: list[dict] = []
        self.last = time.monotonic()

    # ---- storage
    def sign(self, *parts) -> str:
        return hmac.new(self.key, "|".join(map(str, parts)).encode(), "sha256").hexdigest()[:32]

    def put_file(self, kind: str, name: str, data: bytes) -> None:
        dst = self.root / kind / name
        if dst.exists():
            return
        fd, tmp = tempfile.mkstemp(dir=self.root / "tmp")
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(tmp, dst)

    def q(self, sql, *a):
        return self.db.execute(sql, a).fetchall()

    def q1(self, sql, *a):
        r = self.q(sql, *a)
        return r[0] if r else None

    # ---- lookups
    def repo(self, typ, rid, user, authed, write=False):
        r = self.q1("select * from repos where type=? and id=?", typ, rid)
        mine = user is not None and (rid.split("/")[0] == user or user in self.orgs.get(rid.split("/")[0], []))
        if r is None or (r["private"] and not mine):
            if authed:
                raise HubError(404, "Repository not found", "RepoNotFound")
            raise HubError(401, "Invalid username or password.", "RepoNotFound")
        if write and not mine:
            raise HubError(403 if authed else 401, "You don't have the required permissions to perform this action")
        return r

    def check_gate(self, r, user):
        if not r["gated"]:
            return
        if user == r["id"].split("/")[0] or self.q1(
            "select 1 from access where type=? and id=? and user=?", r["type"], r["id"], user
        ):
            return
        raise HubError(403 if user else 401, f"Access to model {r['id']} is restricted", "GatedRepo")

    def resolve(self, typ, rid, rev) -> str:
        for ref in (rev, f"refs/heads/{rev}", f"refs/tags/{rev}"):
            if r := self.q1("select sha from refs where type=? and id=? and ref=?", typ, rid, ref):
                return r["sha"]
        if re.fullmatch(r"[0-9a-f]{7,40}", rev):
            r = self.q("select sha from commits where type=? and id=? and sha like ?", typ, rid, rev + "%")
            if len(r) == 1:
                return r[0]["sha"]
        raise HubError(404, f"Invalid rev id: {rev}", "RevisionNotFound")

    def tree(self, sha) -> dict:
        return json.loads(self.q1("select tree from commits where sha=?", sha)["tree"])

    def write_commit(self, typ, rid, ref, parent, tree, title, message, author) -> str:
        body = json.dumps([typ, rid, parent, tree, title, message, author, time.time_ns()], sort_keys=True)
        sha = hashlib.sha1(body.encode()).hexdigest()
        self.db.execute(
            "insert into commits values(?,?,?,?,?,?,?,?,?)",
            (sha, typ, rid, parent, json.dumps(tree), title, message, author, now()),
        )
        self.db.execute("insert or replace into refs values(?,?,?,?)", (typ, rid, ref, sha))
        return sha

    def has_lfs(self, oid) -> bool:
        return (self.root / "lfs" / oid).exists() or self.q1("select 1 from xet_files where sha256=?", oid) is not None

    def lfs_size(self, oid) -> int:
        p = self.root / "lfs" / oid
        return p.stat().st_size if p.exists() else self.q1("select size from xet_files where sha256=?", oid)["size"]

    def xet_hash(self, oid):
        r = self.q1("select hash from xet_files where sha256=?", oid)
        return r and r["hash"]

    def lfs_bytes(self, oid) -> bytes:
        p = self.root / "lfs" / oid
        if p.exists():
            return p.read_bytes()
        out = b""
        for xorb, s, e, _ in json.loads(self.q1("select terms from xet_files where sha256=?", oid)["terms"]):
            raw = (self.root / "xorbs" / xorb).read_bytes()
            offs = self.xorb_offsets(raw)
            for i in range(s, e):
                o = offs[i]
                clen = int.from_bytes(raw[o + 1 : o + 4], "little")
                out += xet_chunk(raw[o + 4], raw[o + 8 : o + 8 + clen])
        assert hashlib.sha256(out).hexdigest() == oid, "xet reconstruction mismatch"
        return out

    @staticmethod
    def xorb_offsets(raw: bytes) -> list[int]:
        offs, o = [], 0
        while o + 8 <= len(raw) and raw[o] == 0 and raw[o : o + 7] != b"XETBLOB":
            offs.append(o)
            o += 8 + int.from_bytes(raw[o + 1 : o + 4], "little")
        return offs + [o]

    def add_shard(self, b: bytes) -> None:
        pos = 48
        while True:
            fh = b[pos : pos + 32]
            flags, n = struct.unpack_from("<II", b, pos + 32)
            pos += 48
            if fh == b"\xff" * 32:
                break
            terms, sha, size = [], None, 0
            for _ in range(n):
                _f, nb, s, e = struct.unpack_from("<IIII", b, pos + 32)
                terms.append([merkle_hex(b[pos : pos + 32]), s, e, nb])
                size += nb
                pos += 48
            if flags & 1 << 31:
                pos += 48 * n
            if flags & 1 << 30:
                sha = merkle_hex(b[pos : pos + 32])
                pos += 48
            for t in terms:
                if not (self.root / "xorbs" / t[0]).exists():
                    raise HubError(400, f"shard references unknown xorb {t[0]}")
            with self.lock:
                self.db.execute(
                    "insert or replace into xet_files values(?,?,?,?)", (merkle_hex(fh), sha, size, json.dumps(terms))
                )


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "minihub"
    hub: Hub
    cdn = False

    def log_message(self, *a):
        pass

    # ---- body
    def body_iter(self, size=1 << 16):
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while n := int(self.rfile.readline().split(b";")[0], 16):
                left = n
                while left:
                    c = self.rfile.read(min(left, size))
                    if not c:
                        raise ConnectionError("client went away")
                    left -= len(c)
                    yield c
                self.rfile.readline()
            while self.rfile.readline().strip():
                pass
        else:
            left = int(self.headers.get("Content-Length") or 0)
            while left:
                c = self.rfile.read(min(left, size))
                if not c:
                    raise ConnectionError("client went away")
                left -= len(c)
                yield c

    def body(self) -> bytes:
        if self._body is None:
            out, n = bytearray(), 0
            for c in self.body_iter():
                out += c
                n += len(c)
                self.fault("body", n)
            self._body = bytes(out)
        return self._body

    def json_body(self):
        return json.loads(self.body() or b"{}")

    def body_to_tmp(self):
        fd, tmp = tempfile.mkstemp(dir=self.hub.root / "tmp")
        h, n = hashlib.sha256(), 0
        with os.fdopen(fd, "wb") as f:
            for c in self.body_iter():
                f.write(c)
                h.update(c)
                n += len(c)
                self.fault("body", n)
            f.flush()
            os.fsync(f.fileno())
        self._body = b""
        return tmp, h.hexdigest(), n

    # ---- replies
    def reply(self, status=200, data=b"", headers=None, ctype=None):
        if isinstance(data, (dict, list)):
            data, ctype = json.dumps(data).encode(), ctype or "application/json"
        elif isinstance(data, str):
            data, ctype = data.encode(), ctype or "text/plain"
        if self._body is None:
            for _ in self.body_iter():
                pass
        self.fault("reply", 0)
        self._status = status
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Request-Id", self.rid)
        if ctype:
            self.send_header("Content-Type", ctype)
        for k, v in (headers or {}).items():
            self.send_header(k, str(v))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def fault(self, when, nbytes):
        for f in self.hub.faults:
            if (
                f.get("times", 1) <= 0
                or f.get("when", "start") != when
                or not re.search(f["match"], f"{self.command} {self.path}")
            ):
                continue
            if nbytes < f.get("bytes", 0):
                continue
            if f.get("skip", 0) > 0:
                f["skip"] -= 1
                continue
            f["times"] = f.get("times", 1) - 1
            act = f["action"]
            self._status = f"fault:{act}"
            if act == "exit":
                os._exit(137)
            if act == "delay":
                time.sleep(f["seconds"])
            if act == "drop":
                raise ConnectionAbortedError
            if act == "status":
                raise HubError(f["status"], f.get("message", "injected fault"), headers=f.get("headers"))

    def _run(self):
        hub = self.hub
        hub.last = time.monotonic()
        self.rid, self._body, self._status = secrets.token_hex(8), None, None
        u = urlsplit(self.path)
        self.seg = [unquote(s) for s in u.path.split("/") if s]
        self.qs = {k: v[-1] for k, v in parse_qs(u.query).items()}
        if self.headers.get("Expect", "").lower() == "100-continue" and self.command in ("POST", "PUT"):
            self.send_response_only(100)
            self.end_headers()
        try:
            if self.seg[:1] == ["__minihub__"]:
                return self.control()
            self.fault("start", 0)
            tok = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
            if self.cdn or self.seg[:1] in (["xet"], ["__lfs__"]):
                return self.route_storage(tok)
            self.user, self.can_write = None, False
            if tok:
                if tok not in hub.tokens:
                    raise HubError(401, "Invalid credentials in Authorization header")
                self.user, self.can_write = hub.tokens[tok]
            with hub.lock:
                self.route()
        except HubError as e:
            h = {"X-Error-Message": e.message, **({"X-Error-Code": e.code} if e.code else {}), **e.headers}
            try:
                self.reply(e.status, e.body or {"error": e.message}, h)
            except OSError:
                self.hang_up()
        except (ConnectionError, TimeoutError):
            self.hang_up()
        except Exception as e:  # a bug in this server: make it visible to the test
            import traceback

            traceback.print_exc()
            try:
                self.reply(500, {"error": f"minihub bug: {e!r}"})
            except OSError:
                self.close_connection = True
        finally:
            hub.log.append(
                {
                    "t": round(time.time(), 3),
                    "m": self.command,
                    "path": self.path,
                    "status": self._status,
                    "auth": bool(self.headers.get("Authorization")),
                    "cdn": self.cdn,
                    "ua": self.headers.get("User-Agent", "")[:60],
                }
            )

    do_GET = do_HEAD = do_POST = do_PUT = do_DELETE = _run

    def hang_up(self):
        self.close_connection = True
        try:
            self.connection.shutdown(2)
        except OSError:
            pass

    def control(self):
        what = self.seg[1]
        if what == "faults":
            self.hub.faults[:] = self.json_body()
            return self.reply(200, {})
        if what == "log":
            out = list(self.hub.log)
            if self.command == "DELETE":
                self.hub.log.clear()
            return self.reply(200, out)
        if what == "stop":
            self.reply(200, {})
            os._exit(0)
        self.reply(200, {"ok": True})

    # ---- storage plane: signed URLs, no Hub token
    def route_storage(self, tok):
        hub, s, m = self.hub, self.seg, self.command
        if self.cdn and tok:
            raise HubError(400, "Authorization header leaked to the CDN")
        if s[0] == "__lfs__" and self.qs.get("sig") != hub.sign(*s):
            raise HubError(403, "bad signature")
        if s[0] == "__lfs__" and m == "PUT":
            tmp, sha, _ = self.body_to_tmp()
            if len(s) == 2:
                if sha != s[1]:
                    os.unlink(tmp)
                    raise HubError(400, "sha256 mismatch")
                os.replace(tmp, hub.root / "lfs" / sha)
                return self.reply(200, headers={"ETag": f'"{sha}"'})
            os.replace(tmp, hub.root / "parts" / f"{s[1]}.{s[2]}")
            return self.reply(200, headers={"ETag": f'"{sha}"'})
        if s[0] == "__lfs__" and m == "POST":  # multipart completion
            p = self.json_body()
            data = b"".join((hub.root / "parts" / f"{s[1]}.{x['partNumber']}").read_bytes() for x in p["parts"])
            if hashlib.sha256(data).hexdigest() != s[1]:
                raise HubError(400, "sha256 mismatch")
            hub.put_file("lfs", s[1], data)
            for x in p["parts"]:
                (hub.root / "parts" / f"{s[1]}.{x['partNumber']}").unlink()
            return self.reply(200, {})
        if s[0] == "__lfs__":
            return self.send_range(hub.lfs_bytes(s[1]), {"ETag": f'"{s[1]}"'})
        # --- xet CAS
        want = {hub.sign("xet", k): k for k in ("read", "write")}
        if s[1] == "xorb":
            if self.qs.get("sig") != hub.sign("xorb", s[2]):
                raise HubError(403, "bad signature")
            return self.send_range((hub.root / "xorbs" / s[2]).read_bytes(), {})
        if tok not in want:
            raise HubError(401, "bad xet token")
        if s[2:] == ["telemetry"]:
            self.body()
            return self.reply(200, {})
        if m == "POST" and s[2] == "xorbs":
            if want[tok] != "write":
                raise HubError(403, "read-only xet token")
            new = not (hub.root / "xorbs" / s[4]).exists()
            hub.put_file("xorbs", s[4], self.body())
            return self.reply(200, {"was_inserted": new})
        if m == "POST" and s[1:] == ["v1", "shards"]:
            if want[tok] != "write":
                raise HubError(403, "read-only xet token")
            hub.add_shard(self.body())
            return self.reply(200, {"result": 1})
        if m == "GET" and s[1:3] == ["v1", "reconstructions"]:
            with hub.lock:
                r = hub.q1("select * from xet_files where hash=?", s[3])
            if not r:
                raise HubError(404, "no such file")
            terms, fetch, start, end, pos, off = [], {}, 0, r["size"], 0, None
            if rng := re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                start = int(rng[1])
                end = min(end, int(rng[2]) + 1) if rng[2] else end
                if start >= r["size"]:
                    raise HubError(416, "range not satisfiable")
            for xorb, a, b, nb in json.loads(r["terms"]):
                if pos + nb > start and pos < end:
                    off = start - pos if off is None else off
                    offs = hub.xorb_offsets((hub.root / "xorbs" / xorb).read_bytes())
                    terms.append({"hash": xorb, "unpacked_length": nb, "range": {"start": a, "end": b}})
                    fetch.setdefault(xorb, []).append(
                        {
                            "range": {"start": a, "end": b},
                            "url_range": {"start": offs[a], "end": offs[b] - 1},
                            "url": f"{self.server.base}/xet/xorb/{xorb}?sig={hub.sign('xorb', xorb)}",
                        }
                    )
                pos += nb
            return self.reply(200, {"offset_into_first_range": off or 0, "terms": terms, "fetch_info": fetch})
        raise HubError(404, "not found")  # v2 endpoints, global dedup: the client falls back

    def send_range(self, data, headers, status=200):
        headers = {"Accept-Ranges": "bytes", **headers}
        if (m := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))) and self.command == "GET":
            a, b = int(m[1]), min(int(m[2]) if m[2] else len(data) - 1, len(data) - 1)
            if a >= len(data):
                raise HubError(416, "range", headers={"Content-Range": f"bytes */{len(data)}"})
            return self.reply(
                206,
                data[a : b + 1],
                {**headers, "Content-Range": f"bytes {a}-{b}/{len(data)}"},
                "application/octet-stream",
            )
        self.reply(status, data, headers, "application/octet-stream")

    # ---- Hub plane
    def need_write(self):
        if self.user is None:
            raise HubError(401, "Invalid username or password.")
        if not self.can_write:
            raise HubError(403, "You don't have the rights: this token is read-only")

    def route(self):
        s, m, hub = self.seg, self.command, self.hub
        if s == ["api", "whoami-v2"]:
            if not self.user:
                raise HubError(401, "Invalid username or password.")
            return self.reply(
                200,
                {
                    "type": "user",
                    "id": self.user,
                    "name": self.user,
                    "fullname": self.user,
                    "email": None,
                    "orgs": [
                        {"name": o, "type": "org", "roleInOrg": "write"}
                        for o, us in hub.orgs.items()
                        if self.user in us
                    ],
                    "auth": {
                        "type": "access_token",
                        "accessToken": {"displayName": "t", "role": "write" if self.can_write else "read"},
                    },
                },
            )
        if s == ["api", "validate-yaml"]:
            return self.validate_yaml()
        if s == ["api", "agent-harnesses"]:
            return self.reply(200, {"standardEnvVars": [], "harnesses": {}})
        if s[:2] == ["api", "telemetry"]:
            return self.reply(200)
        if s[:2] == ["api", "repos"]:
            return self.repos_api(s[2])
        if s[0] == "api" and len(s) == 2 and s[1] in ("models", "datasets", "spaces"):
            rows = hub.q("select * from repos where type=?", s[1][:-1])
            return self.reply(
                200,
                [
                    self.info(r, hub.resolve(r["type"], r["id"], "main"))
                    for r in rows
                    if not r["private"]
                    and self.qs.get("search", "") in r["id"]
                    and r["id"].startswith(self.qs.get("author", ""))
                ],
            )
        if s[:2] == ["api", "resolve-cache"]:
            return self.file(s[2][:-1], "/".join(s[3:5]), s[5], "/".join(s[6:]), direct=True)
        if s[0] == "api" and s[1] in ("models", "datasets", "spaces") and len(s) >= 4:
            return self.repo_api(s[1][:-1], "/".join(s[2:4]), s[4:])
        typ, rest = (s[0][:-1], s[1:]) if s[0] in ("datasets", "spaces") else ("model", s)
        if len(rest) >= 5 and rest[2] in ("resolve", "raw"):
            return self.file(typ, "/".join(rest[:2]), rest[3], "/".join(rest[4:]))
        if len(rest) == 6 and rest[1].endswith(".git") and rest[2:] == ["info", "lfs", "objects", "batch"]:
            return self.lfs_batch(typ, rest[0] + "/" + rest[1][:-4])
        raise HubError(404, "Not found")

    def repos_api(self, what):
        hub, p = self.hub, self.json_body()
        self.need_write()
        db = hub.db
        typ = p.get("type") or "model"
        if what == "move":
            self.hub.repo(typ, p["fromRepo"], self.user, True, True)
            if hub.q1("select 1 from repos where type=? and id=?", typ, p["toRepo"]):
                raise HubError(409, "target exists")
            for t in ("repos", "refs", "commits", "discussions", "access"):
                db.execute(f"update {t} set id=? where type=? and id=?", (p["toRepo"], typ, p["fromRepo"]))
            return self.reply(200, {})
        ns = p.get("organization") or self.user
        rid, url = f"{ns}/{p['name']}", self.web(typ, f"{ns}/{p['name']}")
        if what == "delete":
            hub.repo(typ, rid, self.user, True, True)
            for t in ("repos", "refs", "commits", "discussions", "access"):
                db.execute(f"delete from {t} where type=? and id=?", (typ, rid))
            return self.reply(200, {})
        if not NAME_RE.match(p["name"]):
            raise HubError(400, "Invalid repo name")
        if ns != self.user and self.user not in hub.orgs.get(ns, []):
            raise HubError(403, f'You don\'t have the rights to create a {typ} under the namespace "{ns}"')
        if hub.q1("select 1 from repos where type=? and id=?", typ, rid):
            msg = f"You already created this {typ} repo: {rid}"
            raise HubError(409, msg, body={"error": msg, "url": url})  # the client reads `url` here when exist_ok
        db.execute("begin immediate")
        db.execute(
            "insert into repos values(?,?,?,?,?)",
            (typ, rid, int(p.get("visibility") == "private" or p.get("private") is True), None, now()),
        )
        hub.put_file("git", git_sha1(GITATTRIBUTES), GITATTRIBUTES)
        hub.write_commit(
            typ,
            rid,
            "refs/heads/main",
            None,
            {".gitattributes": {"oid": git_sha1(GITATTRIBUTES), "size": len(GITATTRIBUTES)}},
            "initial commit",
            "",
            self.user,
        )
        db.execute("commit")
        self.reply(200, {"url": url, "name": rid, "id": rid})

    def web(self, typ, rid):
        return f"{self.server.base}/{'' if typ == 'model' else typ + 's/'}{rid}"

    def validate_yaml(self):
        p = self.json_body()
        errs, warns = [], []
        m = re.match(r"\A---\s*?\n(.*?\n)?---\s*(\n|\Z)", p["content"].replace("\r\n", "\n"), re.S)
        try:
            import yaml

            d = yaml.safe_load(m[1] or "") if m else None
            if m and d is not None and not isinstance(d, dict):
                errs.append("metadata should be a mapping")
            if not d:
                warns.append("empty or missing yaml metadata in repo card")
            for k, t in (("license", str), ("pipeline_tag", str), ("library_name", str)):
                if isinstance(d, dict) and k in d and not isinstance(d[k], (t, list) if k == "license" else t):
                    errs.append(f'"{k}" must be a string')
            for k in ("tags", "metrics"):
                if (
                    isinstance(d, dict)
                    and d.get(k) is not None
                    and not (isinstance(d[k], list) and all(isinstance(x, str) for x in d[k]))
                ):
                    errs.append(f'"{k}" must be an array of strings')
            for mi in (d or {}).get("model-index") or [] if isinstance(d, dict) else []:
                for r in mi.get("results", []):
                    if not all(k in r for k in ("task", "dataset", "metrics")):
                        errs.append('"model-index" is not valid')
        except ImportError:
            pass
        except Exception as e:
            errs.append(f"YAML error: {e}")
        self.reply(
            400 if errs else 200,
            {"errors": [{"message": e} for e in errs], "warnings": [{"message": w} for w in warns]},
        )

    def entry(self, path, e, expand=False, commit=None):
        d = {"type": "file", "oid": e["oid"], "size": e["size"], "path": path}
        if e.get("lfs"):
            d["lfs"] = {"oid": e["lfs"], "size": e["size"], "pointerSize": 134}
            if h := self.hub.xet_hash(e["lfs"]):
                d["xetHash"] = h
        if expand and commit:
            d["lastCommit"] = {"id": commit["sha"], "title": commit["title"], "date": commit["date"]}
        return d

    def text(self, tree, path):
        e = tree.get(path)
        return (self.hub.root / "git" / e["oid"]).read_bytes().decode() if e and not e.get("lfs") else None

    def info(self, r, sha):
        hub = self.hub
        tree = hub.tree(sha)
        c = hub.q1("select * from commits where sha=?", sha)
        cfg, card = {}, {}
        try:
            cfg = json.loads(self.text(tree, "config.json") or "{}")
        except ValueError:
            pass
        if m := re.match(r"\A---\s*\n(.*?)\n---", self.text(tree, "README.md") or "", re.S):
            try:
                import yaml

                card = yaml.safe_load(m[1]) or {}
            except Exception:
                pass
        tags = list(card.get("tags") or [])
        tags += [
            t
            for t, on in (
                ("transformers", bool(cfg)),
                ("safetensors", any(p.endswith(".safetensors") for p in tree)),
                (cfg.get("model_type"), bool(cfg.get("model_type"))),
                ("custom_code", "auto_map" in cfg),
            )
            if on and t not in tags
        ]
        d = {
            "_id": r["id"],
            "id": r["id"],
            "modelId": r["id"],
            "author": r["id"].split("/")[0],
            "sha": sha,
            "lastModified": c["date"],
            "createdAt": r["created"],
            "private": bool(r["private"]),
            "gated": r["gated"] or False,
            "disabled": False,
            "downloads": 0,
            "likes": 0,
            "tags": tags,
            "pipeline_tag": card.get("pipeline_tag"),
            "library_name": card.get("library_name") or ("transformers" if cfg else None),
            "config": {k: cfg[k] for k in ("architectures", "model_type", "auto_map") if k in cfg},
            "cardData": card,
            "spaces": [],
            "usedStorage": 0,
            "siblings": [
                {
                    "rfilename": p,
                    **(
                        {
                            "size": e["size"],
                            "blobId": e["oid"],
                            **(
                                {"lfs": {"sha256": e["lfs"], "size": e["size"], "pointerSize": 134}}
                                if e.get("lfs")
                                else {}
                            ),
                        }
                        if self.qs.get("blobs")
                        else {}
                    ),
                }
                for p, e in sorted(tree.items())
            ],
        }
        if "model-index" in card:
            d["model-index"] = card["model-index"]
        ev = [p for p in tree if fnmatch(p, ".eval_results/*.yaml")]
        if ev and "evalResults" in urlsplit(self.path).query:
            import yaml

            d["evalResults"] = [{"filename": p, "data": x} for p in ev for x in yaml.safe_load(self.text(tree, p))]
        return d

    def repo_api(self, typ, rid, rest):
        hub, m = self.hub, self.command
        write = (
            m in ("POST", "PUT", "DELETE")
            and rest[:1] not in (["paths-info"], ["discussions"])
            and not self.qs.get("create_pr")
        )
        if write:
            self.need_write()
        r = hub.repo(typ, rid, self.user, self.user is not None, write)
        op, arg = (rest + ["", ""])[0], "/".join(rest[1:])
        if not rest or op == "revision":
            return self.reply(200, self.info(r, hub.resolve(typ, rid, arg or "main")))
        if op == "auth-check":
            hub.check_gate(r, self.user)
            if arg == "write":
                self.need_write()
                hub.repo(typ, rid, self.user, True, True)
            return self.reply(200, {})
        if op == "settings":
            p = self.json_body()
            if "visibility" in p:
                hub.db.execute(
                    "update repos set private=? where type=? and id=?", (int(p["visibility"] == "private"), typ, rid)
                )
            if "gated" in p:
                hub.db.execute("update repos set gated=? where type=? and id=?", (p["gated"] or None, typ, rid))
            return self.reply(200, p)
        if op == "user-access-request":
            hub.db.execute("insert or ignore into access values(?,?,?)", (typ, rid, self.json_body()["user"]))
            return self.reply(200, {})
        if op == "refs":
            rows = hub.q("select ref,sha from refs where type=? and id=?", typ, rid)
            pick = lambda pre: [
                {"name": x["ref"].removeprefix(pre), "ref": x["ref"], "targetCommit": x["sha"]}
                for x in rows
                if x["ref"].startswith(pre)
            ]
            return self.reply(
                200,
                {
                    "branches": pick("refs/heads/"),
                    "tags": pick("refs/tags/"),
                    "converts": [],
                    "pullRequests": pick("refs/pr/"),
                },
            )
        if op == "commits":
            out, sha = [], hub.resolve(typ, rid, arg or "main")
            while sha:
                c = hub.q1("select * from commits where sha=?", sha)
                out.append(
                    {
                        "id": c["sha"],
                        "title": c["title"],
                        "message": c["message"],
                        "date": c["date"],
                        "authors": [{"user": c["author"]}],
                    }
                )
                sha = c["parent"]
            return self.reply(200, out)
        if op in ("branch", "tag"):
            kind = "refs/heads/" if op == "branch" else "refs/tags/"
            p = self.json_body() if m == "POST" else {}
            name = arg if op == "branch" or m == "DELETE" else p["tag"]
            if m == "DELETE":
                if op == "branch" and name == "main":
                    raise HubError(403, "Cannot delete the main branch")
                hub.resolve(typ, rid, kind + name)
                hub.db.execute("delete from refs where type=? and id=? and ref=?", (typ, rid, kind + name))
                return self.reply(200, {})
            if hub.q1("select 1 from refs where type=? and id=? and ref=?", typ, rid, kind + name):
                raise HubError(409, f"Reference already exists: {name}")
            hub.db.execute(
                "insert into refs values(?,?,?,?)",
                (
                    typ,
                    rid,
                    kind + name,
                    hub.resolve(typ, rid, (p.get("startingPoint") or "main") if op == "branch" else arg),
                ),
            )
            return self.reply(201, {})
        if op == "tree":
            rev, sub = rest[1], "/".join(rest[2:]).strip("/")
            sha = hub.resolve(typ, rid, rev)
            tree = hub.tree(sha)
            c = hub.q1("select * from commits where sha=?", sha)
            pre, rec = sub + "/" if sub else "", self.qs.get("recursive", "").lower() in ("1", "true")
            out, dirs = [], set()
            for p, e in sorted(tree.items()):
                if not p.startswith(pre):
                    continue
                parts = p[len(pre) :].split("/")
                for i in range(1, len(parts) if rec else min(len(parts), 2)):
                    d = pre + "/".join(parts[:i])
                    if d not in dirs:
                        dirs.add(d)
                        out.append(
                            {"type": "directory", "oid": hashlib.sha1(d.encode()).hexdigest(), "size": 0, "path": d}
                        )
                if rec or len(parts) == 1:
                    out.append(self.entry(p, e, self.qs.get("expand", "").lower() in ("1", "true"), c))
            if not out and sub:
                raise HubError(404, f"{sub} does not exist on {rev}", "EntryNotFound", {"X-Repo-Commit": sha})
            n, o = int(self.qs.get("limit", 1000)), int(self.qs.get("cursor", 0))
            h = (
                {
                    "Link": f'<{self.server.base}{urlsplit(self.path).path}?recursive={rec}&limit={n}&cursor={o + n}>; rel="next"'
                }
                if o + n < len(out)
                else {}
            )
            return self.reply(200, out[o : o + n], h)
        if op == "paths-info":
            f = (
                parse_qs(self.body().decode())
                if "json" not in self.headers.get("Content-Type", "")
                else self.json_body()
            )
            sha = hub.resolve(typ, rid, arg or "main")
            tree = hub.tree(sha)
            c = hub.q1("select * from commits where sha=?", sha)
            out = []
            for p in f["paths"]:
                p = p.strip("/")
                if p in tree:
                    out.append(self.entry(p, tree[p], f.get("expand") not in (None, ["False"], ["false"]), c))
                elif any(k.startswith(p + "/") for k in tree):
                    out.append({"type": "directory", "path": p, "oid": hashlib.sha1(p.encode()).hexdigest(), "size": 0})
            return self.reply(200, out)
        if op in ("xet-read-token", "xet-write-token"):
            hub.check_gate(r, self.user)
            if op == "xet-write-token" and not self.qs.get("create_pr"):
                self.need_write()
                hub.repo(typ, rid, self.user, self.user is not None, True)
            t = {
                "casUrl": f"{self.server.base}/xet",
                "exp": int(time.time()) + 3600,
                "accessToken": hub.sign("xet", op.split("-")[1]),
            }
            return self.reply(
                200,
                t,
                {
                    "X-Xet-Cas-Url": t["casUrl"],
                    "X-Xet-Token-Expiration": t["exp"],
                    "X-Xet-Access-Token": t["accessToken"],
                },
            )
        if op == "preupload":
            return self.preupload(typ, rid, arg)
        if op == "commit":
            return self.commit(typ, rid, arg)
        if op == "discussions":
            return self.discussions(typ, rid, rest[1:])
        if op == "super-squash":
            sha = hub.resolve(typ, rid, arg)
            sha = hub.write_commit(
                typ, rid, "refs/heads/" + arg, None, hub.tree(sha), self.json_body()["message"], "", self.user
            )
            return self.reply(200, {})
        raise HubError(404, "Not found")

    def preupload(self, typ, rid, rev):
        p, hub = self.json_body(), self.hub
        tree = hub.tree(hub.resolve(typ, rid, rev))
        out = []
        ign = (p.get("gitIgnore") or self.text(tree, ".gitignore") or "").split()
        attrs = [ln.split()[0] for ln in (self.text(tree, ".gitattributes") or "").splitlines() if "filter=lfs" in ln]
        for f in p["files"]:
            path, base = f["path"], f["path"].rsplit("/", 1)[-1]
            lfs = (
                any(fnmatch(base, a) or fnmatch(path, a) for a in attrs)
                or f["size"] > LFS_THRESHOLD
                or b"\0" in base64.b64decode(f["sample"])
            )
            e = tree.get(path) or {}
            out.append(
                {
                    "path": path,
                    "uploadMode": "lfs" if lfs else "regular",
                    "oid": e.get("lfs") or e.get("oid"),
                    "shouldIgnore": any(
                        fnmatch(base, g.rstrip("/")) or fnmatch(path, g.rstrip("/") + "*")
                        for g in ign
                        if not g.startswith("#")
                    ),
                }
            )
        self.reply(200, {"files": out})

    def commit(self, typ, rid, rev):
        hub, raw = self.hub, self.body()
        if self.user is None:
            raise HubError(401, "Invalid username or password.")
        lines = [json.loads(x) for x in raw.splitlines() if x.strip()]
        head = lines[0]["value"]
        if not head.get("summary"):
            raise HubError(400, "Commit summary can't be empty")
        db = hub.db
        db.execute("begin immediate")
        try:
            parent = hub.resolve(typ, rid, rev)
            pc = head.get("parentCommit")
            pr = self.qs.get("create_pr")
            if pc and pr:
                parent = hub.resolve(typ, rid, pc)
            elif pc and not parent.startswith(pc):
                raise HubError(412, "A commit has happened since. Please refresh and try again.")
            ref = (
                f"refs/heads/{rev}"
                if hub.q1("select 1 from refs where type=? and id=? and ref=?", typ, rid, f"refs/heads/{rev}")
                else rev
            )
            if not pr and not ref.startswith(("refs/heads/", "refs/pr/")):
                raise HubError(400, "Commits must target a branch or a PR")
            tree = dict(hub.tree(parent))
            missing = []
            for ln in lines[1:]:
                k, v = ln["key"], ln["value"]
                path = v["path"]
                if path.startswith("/") or ".." in path.split("/") or ".git" in path.split("/"):
                    raise HubError(400, f"Invalid path {path}")
                if k in ("file", "lfsFile") and (
                    any(t.startswith(path + "/") for t in tree)
                    or any("/".join(path.split("/")[:i]) in tree for i in range(1, path.count("/") + 1))
                ):
                    raise HubError(400, f"path {path} conflicts with an existing file or folder")
                if k == "file":
                    data = base64.b64decode(v["content"], validate=True)
                    hub.put_file("git", git_sha1(data), data)
                    tree[path] = {"oid": git_sha1(data), "size": len(data)}
                elif k == "lfsFile":
                    oid = v["oid"]
                    if not hub.has_lfs(oid):
                        missing.append(path)
                        continue
                    size = hub.lfs_size(oid)
                    ptr = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n".encode()
                    tree[path] = {"oid": git_sha1(ptr), "size": size, "lfs": oid}
                elif k == "deletedFile":
                    if path not in tree:
                        raise HubError(404, f"A file with this name doesn't exist: {path}", "EntryNotFound")
                    del tree[path]
                elif k == "deletedFolder":
                    for t in [t for t in tree if t.startswith(path.rstrip("/") + "/")]:
                        del tree[t]
                else:
                    raise HubError(400, f"unknown operation {k}")
            if missing:
                raise HubError(
                    400,
                    "Your push was rejected because an LFS pointer pointed to a file that does not exist. Offending file: "
                    + ", ".join(missing),
                )
            out = {"success": True, "commitUrl": None, "commitOid": None, "hookOutput": ""}
            if pr:
                num = self.new_discussion(typ, rid, head["summary"], head.get("description", ""), True, rev, parent)
                ref = f"refs/pr/{num}"
                out["pullRequestUrl"] = f"{self.web(typ, rid)}/discussions/{num}"
            sha = hub.write_commit(typ, rid, ref, parent, tree, head["summary"], head.get("description", ""), self.user)
            db.execute("commit")
        except BaseException:
            db.execute("rollback")
            raise
        self.reply(200, {**out, "commitUrl": f"{self.web(typ, rid)}/commit/{sha}", "commitOid": sha})

    def new_discussion(self, typ, rid, title, desc, is_pr, base, sha):
        hub = self.hub
        num = (hub.q1("select max(num) n from discussions where type=? and id=?", typ, rid)["n"] or 0) + 1
        hub.db.execute(
            "insert into discussions values(?,?,?,?,?,?,?,?,?,?,?)",
            (
                typ,
                rid,
                num,
                title,
                desc,
                self.user,
                "draft" if is_pr else "open",
                int(is_pr),
                f"refs/heads/{base}",
                now(),
                None,
            ),
        )
        if is_pr:
            hub.db.execute("insert into refs values(?,?,?,?)", (typ, rid, f"refs/pr/{num}", sha))
        return num

    def disc(self, d):
        return {
            "num": d["num"],
            "title": d["title"],
            "author": {"name": d["author"]},
            "createdAt": d["created"],
            "status": d["status"],
            "repo": {"name": d["id"], "type": d["type"]},
            "isPullRequest": bool(d["is_pr"]),
        }

    def discussions(self, typ, rid, rest):
        hub, m = self.hub, self.command
        if m == "POST" and self.user is None:
            raise HubError(401, "Invalid username or password.")
        if not rest and m == "POST":
            p = self.json_body()
            return self.reply(
                200,
                {
                    "num": self.new_discussion(
                        typ, rid, p["title"], p["description"], p["pullRequest"], "main", hub.resolve(typ, rid, "main")
                    )
                },
            )
        if not rest:
            rows = hub.q("select * from discussions where type=? and id=? order by num desc", typ, rid)
            return self.reply(200, {"count": len(rows), "start": 0, "discussions": [self.disc(d) for d in rows]})
        d = hub.q1("select * from discussions where type=? and id=? and num=?", typ, rid, int(rest[0]))
        if not d:
            raise HubError(404, "Discussion not found")
        if rest[1:] == ["merge"]:
            self.need_write()
            hub.repo(typ, rid, self.user, True, True)
            pr, base = hub.resolve(typ, rid, f"refs/pr/{d['num']}"), hub.resolve(typ, rid, d["base"])
            sha = hub.write_commit(
                typ,
                rid,
                d["base"],
                base,
                {**hub.tree(base), **hub.tree(pr)},
                d["title"] + f" (#{d['num']})",
                "",
                self.user,
            )
            hub.db.execute(
                "update discussions set status='merged', merge_sha=? where type=? and id=? and num=?",
                (sha, typ, rid, d["num"]),
            )
            return self.reply(200, {})
        if rest[1:] == ["status"]:
            st = self.json_body()["status"]
            hub.db.execute("update discussions set status=? where type=? and id=? and num=?", (st, typ, rid, d["num"]))
            return self.reply(
                200,
                {
                    "newStatus": {
                        "id": "e",
                        "type": "status-change",
                        "createdAt": now(),
                        "author": {"name": self.user},
                        "data": {"status": st},
                    }
                },
            )
        ev = {
            "id": "0",
            "type": "comment",
            "createdAt": d["created"],
            "author": {"name": d["author"]},
            "data": {"edited": False, "hidden": False, "latest": {"raw": d["description"]}},
        }
        self.reply(
            200,
            {
                **self.disc(d),
                "events": [ev],
                "changes": {"base": d["base"], "mergeCommitId": d["merge_sha"]},
                "filesWithConflicts": [],
                "diff": "",
            },
        )

    def lfs_batch(self, typ, rid):
        hub, p = self.hub, self.json_body()
        self.need_write() if p["operation"] == "upload" else None
        hub.repo(typ, rid, self.user, self.user is not None, False)
        out = []
        for o in p["objects"]:
            oid = o["oid"]
            d = {"oid": oid, "size": o["size"]}
            if not hub.has_lfs(oid):
                url = lambda *x: (
                    f"{self.server.cdn_base}/" + "/".join(("__lfs__", *x)) + "?sig=" + hub.sign("__lfs__", *x)
                )
                part = self.server.part_size
                if "multipart" in p.get("transfers", []) and o["size"] > part:
                    n = -(-o["size"] // part)
                    d["actions"] = {
                        "upload": {
                            "href": url(oid),
                            "header": {"chunk_size": str(part), **{str(i + 1): url(oid, str(i + 1)) for i in range(n)}},
                        }
                    }
                else:
                    d["actions"] = {"upload": {"href": url(oid)}}
            out.append(d)
        self.reply(200, {"transfer": "basic", "objects": out}, ctype="application/vnd.git-lfs+json")

    def file(self, typ, rid, rev, path, direct=False):
        hub = self.hub
        r = hub.repo(typ, rid, self.user, self.user is not None)
        sha = hub.resolve(typ, rid, rev)
        h = {"X-Repo-Commit": sha}
        hub.check_gate(r, self.user)
        e = hub.tree(sha).get(path)
        if e is None:
            raise HubError(404, "Entry not found", "EntryNotFound", h)
        if not e.get("lfs"):  # like the real Hub: relative redirect to an immutable, same-origin URL
            h["ETag"] = f'"{e["oid"]}"'
            if not direct:
                return self.reply(
                    307,
                    b"",
                    {
                        **h,
                        "Location": "/"
                        + "/".join(quote(x, safe="") for x in ("api", "resolve-cache", typ + "s", *rid.split("/"), sha))
                        + "/"
                        + quote(path),
                    },
                )
            return self.send_range((hub.root / "git" / e["oid"]).read_bytes(), h)
        h |= {"ETag": f'"{e["lfs"]}"', "X-Linked-Etag": f'"{e["lfs"]}"', "X-Linked-Size": e["size"]}
        if x := hub.xet_hash(e["lfs"]):
            h |= {
                "X-Xet-Hash": x,
                "Link": f'<{self.server.base}/api/{typ}s/{rid}/xet-read-token/{sha}>; rel="xet-auth"',
            }
        # Another origin on purpose: the client must stop following here on HEAD and drop the token on GET.
        self.reply(
            302,
            b"",
            {**h, "Location": f"{self.server.cdn_base}/__lfs__/{e['lfs']}?sig={hub.sign('__lfs__', e['lfs'])}"},
        )


def serve(root, port=0, tokens=None, orgs=None, part_size=64 << 20, cdn_port=0):
    """Start in threads; returns (server, cdn_server). Used by main() and usable as a fixture."""
    hub = Hub(Path(root), tokens or {}, orgs or {})
    mk = lambda cdn, p: ThreadingHTTPServer(("127.0.0.1", p), type("H", (Handler,), {"hub": hub, "cdn": cdn}))
    a, b = mk(False, port), mk(True, cdn_port)
    for s in (a, b):
        s.daemon_threads = True
        s.part_size = part_size
        s.base, s.cdn_base = (f"http://127.0.0.1:{x.server_port}" for x in (a, b))
        threading.Thread(target=s.serve_forever, daemon=True).start()
    a.hub = hub
    return a, b


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--root", required=True)
    ap.add_argument("--port", type=int, default=0)
    ap.add_argument("--cdn-port", type=int, default=0)
    ap.add_argument("--ready-file")
    ap.add_argument("--token", action="append", default=[], help="TOKEN=USER or TOKEN=USER:read")
    ap.add_argument("--org", action="append", default=[], help="ORG=USER,USER")
    ap.add_argument("--part-size", type=int, default=64 << 20)
    ap.add_argument("--idle", type=float, default=900)
    a = ap.parse_args()
    toks = {k: (v.split(":")[0], not v.endswith(":read")) for k, v in (t.split("=") for t in a.token)}
    srv, _ = serve(
        a.root, a.port, toks, {k: v.split(",") for k, v in (o.split("=") for o in a.org)}, a.part_size, a.cdn_port
    )
    if a.ready_file:
        tmp = a.ready_file + ".tmp"
        Path(tmp).write_text(json.dumps({"url": srv.base, "cdn": srv.cdn_base, "pid": os.getpid()}))
        os.replace(tmp, a.ready_file)
    print(srv.base, flush=True)
    ppid = os.getppid()
    while os.getppid() == ppid and time.monotonic() - srv.hub.last < a.idle:
        time.sleep(0.5)


if __name__ == "__main__":
    main()
