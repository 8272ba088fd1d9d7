"""`python -m loopback --root FOLDER`: serve until the parent process is gone."""

import argparse
import json
import os
import time
from pathlib import Path

from loopback.hub import Hub, User
from loopback.server import serve
from loopback.storage import Storage


def main() -> None:
    parent = os.getppid()
    arguments = parser().parse_args()
    hub = Hub(Storage(arguments.root), users(arguments), arguments.page_size)
    serve(hub, arguments.port, arguments.storage_port)
    print(json.dumps({"url": hub.url, "storage_url": hub.storage_url}), flush=True)
    while os.getppid() == parent:
        time.sleep(0.5)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("loopback")
    parser.add_argument("--root", type=Path, required=True, help="folder that keeps everything")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--storage-port", type=int, default=0, help="of the second origin, for large files")
    parser.add_argument("--token", action="append", default=[], metavar="TOKEN=USER[:read]")
    parser.add_argument("--page-size", type=int, default=1000, help="files on a page of a tree")
    return parser


def users(arguments: argparse.Namespace) -> dict[str, User]:
    """{token: its user}"""
    found = {}
    for word in arguments.token:
        token, _, user = word.partition("=")
        name, _, right = user.partition(":")
        found[token] = User(name, right != "read")
    return found


if __name__ == "__main__":
    main()
