"""The loopback Hub as a subprocess: started, told to fail, killed, and started again where it was."""

import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TESTS = Path(__file__).resolve().parents[1]
USERS = ("hf_alice=alice", "hf_bob=bob", "hf_ro=alice:read")
ORGANISATIONS = ("acme=alice",)
OWN_VARIABLES = ("HF_", "TRANSFORMERS_", "HUGGINGFACE", "PYTHONPATH")
CLIENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "200ms",  # by default a client whose server is gone gives up after minutes
    "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "2",
    "NO_PROXY": "127.0.0.1,localhost",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}


class LoopbackHub:
    """A Hub at `url` whose repositories live in the folder `root`, which a second start on the same folder finds again."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self.root, self.arguments = Path(root), arguments
        self.port = self.storage_port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Serve; after a stop or a death on the same ports, where clients that are still trying find it."""
        self.root.mkdir(parents=True, exist_ok=True)
        ready = self.root / "ready.json"
        ready.unlink(missing_ok=True)
        ports = ["--port", str(self.port), "--cdn-port", str(self.storage_port), "--ready-file", str(ready)]
        users = [word for user in USERS for word in ("--token", user)]
        organisations = [word for organisation in ORGANISATIONS for word in ("--org", organisation)]
        command = [sys.executable, "-m", "loopback", "--root", str(self.root), *ports, *users, *organisations]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self.process = subprocess.Popen([*command, *self.arguments], env=environment, stdout=subprocess.DEVNULL)
        self._wait(ready)
        found = json.loads(ready.read_text())
        self.port, self.storage_port = (int(found[name].rpartition(":")[2]) for name in ("url", "cdn"))
        return self

    def _wait(self, ready: Path) -> None:
        assert self.process is not None
        deadline = time.monotonic() + 30
        while not ready.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the loopback Hub did not start: exit status {self.process.returncode}")
            time.sleep(0.01)

    def stop(self) -> None:
        self.kill()

    def kill(self) -> None:
        """End the server at once, whatever it is in the middle of."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def faults(self, *faults: dict[str, Any]) -> None:
        """Make these faults happen, in place of those asked for before."""
        self._control("faults", "POST", list(faults))

    def log(self, *, clear: bool = True) -> list[dict[str, Any]]:
        """The requests since the last look."""
        return self._control("log", "DELETE" if clear else "GET")

    def _control(self, what: str, method: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}/__minihub__/{what}", data=body, method=method)
        with urllib.request.urlopen(request, timeout=10) as reply:
            return json.load(reply)

    def environment(
        self, home: Path, token: str | None = "hf_alice", *, xet: bool = False, **extra: Any
    ) -> dict[str, str]:
        """The environment of a client subprocess with this Hub, the cache folder `home` and, with a token, a user."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
        environment |= CLIENT | {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": str(int(not xet))}
        if token is not None:
            environment["HF_TOKEN"] = token
        return environment | {name: str(value) for name, value in extra.items()}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
