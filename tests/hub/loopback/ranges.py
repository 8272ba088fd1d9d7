"""Parts of files, as clients that resume ask for them."""

import re

from loopback.messages import HubError, Reply, Request

BINARY = {"Accept-Ranges": "bytes", "Content-Type": "application/octet-stream"}


def requested(request: Request, size: int) -> tuple[int, int] | None:
    """First byte and end of the part that is asked for; 416 beyond the end, None for the whole."""
    found = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("Range", ""))
    if found is None:
        return None
    start, end = int(found[1]), min(int(found[2]) + 1, size) if found[2] else size
    if start >= size:
        raise HubError(416, "Range not satisfiable", headers={"Content-Range": f"bytes */{size}"})
    return start, end


def ranged(request: Request, data: bytes, headers: dict[str, str]) -> Reply:
    """The data, or the part of it that is asked for."""
    part = None if request.method == "HEAD" else requested(request, len(data))
    if part is None:
        return Reply(data, headers={**BINARY, **headers})
    start, end = part
    span = {"Content-Range": f"bytes {start}-{end - 1}/{len(data)}"}
    return Reply(data[start:end], 206, {**BINARY, **headers, **span})
