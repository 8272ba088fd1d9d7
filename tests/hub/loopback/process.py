"""The loopback Hub as a subprocess: started, told to fail, killed, and started again where it was."""

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

TESTS = Path(__file__).resolve().parents[1]
USERS = ("hf_alice=alice", "hf_bob=bob", "hf_ro=alice:read")
CLIENT = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_DISABLE_UPDATE_CHECK": "1",
    # By default a client whose server is gone gives up after minutes.
    "HF_XET_CLIENT_RETRY_BASE_DELAY": "200ms",
    "HF_XET_CLIENT_RETRY_MAX_ATTEMPTS": "2",
    "NO_PROXY": "127.0.0.1,localhost",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
# What of our own environment would lead a client elsewhere.
OWN_VARIABLES = ("HF_", "TRANSFORMERS_", "HUGGINGFACE", "PYTHONPATH")


class LoopbackHub:
    """A Hub at `url` that keeps everything in the folder `root`, also for those who start on it later.

    Its users are alice (token hf_alice; hf_ro, which may only read) and bob (hf_bob). `options` are those of `python -m loopback`, such as `page_size=5`.
    """

    def __init__(self, root: Path, **options: int) -> None:
        self.root, self.options = Path(root), options
        self.port = self.storage_port = 0
        self._process: subprocess.Popen[str] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Serve; after a stop or a death on the same ports, where clients that are still trying find it."""
        self.kill()
        options = {"port": self.port, "storage_port": self.storage_port, **self.options}
        words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items()]
        words += [f"--token={user}" for user in USERS]
        command = [sys.executable, "-m", "loopback", f"--root={self.root}", *words]
        environment = {**os.environ, "PYTHONPATH": str(TESTS)}
        self._process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line:
            raise RuntimeError(f"the loopback Hub did not start: exit status {self._process.wait()}")
        self.port, self.storage_port = (int(url.rpartition(":")[2]) for url in json.loads(line).values())
        return self

    def stop(self) -> None:
        self._end("terminate")

    def kill(self) -> None:
        """End the server at once, whatever it is in the middle of."""
        self._end("kill")

    def _end(self, how: str) -> None:
        if self._process is not None:
            getattr(self._process, how)()
            self._process.communicate()
            self._process = None

    def wait(self) -> int | None:
        """Wait until the server has died of a fault; its exit status."""
        return self._process.wait(timeout=60) if self._process else None

    def faults(self, *faults: dict[str, Any]) -> None:
        """Make these faults happen (`faults.Fault` has their words), in place of those asked for before."""
        self._control("faults", "POST", list(faults))

    def log(self, *, clear: bool = True) -> list[dict[str, Any]]:
        """The requests since it was last cleared: method, path, status, whether authorised, whether for storage."""
        return list(self._control("log", "DELETE" if clear else "GET"))

    def _control(self, what: str, method: str, data: Any = None) -> Any:
        body = None if data is None else json.dumps(data).encode()
        request = urllib.request.Request(f"{self.url}/__loopback__/{what}", data=body, method=method)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=10) as reply:
            return json.load(reply)

    def environment(
        self, home: Path, token: str | None = "hf_alice", *, xet: bool = False, **extra: Any
    ) -> dict[str, str]:
        """The environment of a client subprocess with this Hub, the cache folder `home` and, with a token, a user.

        Large files go through Xet or through LFS: that is the client's choice.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
        environment |= CLIENT | {"HF_ENDPOINT": self.url, "HF_HOME": str(home), "HF_HUB_DISABLE_XET": str(int(not xet))}
        environment |= {"HF_TOKEN": token} if token is not None else {}
        return environment | {name: str(value) for name, value in extra.items()}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
