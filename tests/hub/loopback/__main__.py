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
    hub = Hub(Storage(arguments.root), users(arguments), arguments.part_size, arguments.page_size)
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
    parser.add_argument("--organisation", action="append", default=[], metavar="NAME=USER,USER")
    parser.add_argument("--part-size", type=int, default=64 << 20, help="LFS files above it go up in parts")
    parser.add_argument("--page-size", type=int, default=1000, help="files on a page of a tree")
    return parser


def users(arguments: argparse.Namespace) -> dict[str, User]:
    """{token: its user}"""
    members = dict(word.split("=") for word in arguments.organisation)
    found = {}
    for word in arguments.token:
        token, _, user = word.partition("=")
        name, _, right = user.partition(":")
        own = tuple(group for group, names in members.items() if name in names.split(","))
        found[token] = User(name, right != "read", own)
    return found


if __name__ == "__main__":
    main()
