"""Routes from paths to functions: patterns such as `/api/{kinds}/{repo}/tree/{revision}`, in the order of definition."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from loopback.messages import HubError, Reply, Request

Endpoint = Callable[[Request], Reply]
# What stands in a path for a name in braces; anything else is one segment. A revision is one quoted segment.
PARTS = {"kinds": "models|datasets|spaces", "repo": "[^/]+/[^/]+", "path": ".+"}


@dataclass(frozen=True)
class Route:
    """One pattern and its function; routes to storage take signed addresses in place of users."""

    method: str
    pattern: re.Pattern[str]
    endpoint: Endpoint
    storage: bool


ROUTES: list[Route] = []


def route(method: str, *paths: str, storage: bool = False) -> Callable[[Endpoint], Endpoint]:
    """Serve these paths by the function below."""

    def register(endpoint: Endpoint) -> Endpoint:
        ROUTES.extend(Route(method, compiled(path), endpoint, storage) for path in paths)
        return endpoint

    return register


def compiled(path: str) -> re.Pattern[str]:
    """The expression for a pattern."""
    return re.compile("".join(expressions(path)))


def expressions(path: str) -> Iterator[str]:
    """The expressions of a pattern's pieces, which alternate between text and names."""
    for index, piece in enumerate(re.split(r"\{(\w+)\}", path)):
        yield f"(?P<{piece}>{PARTS.get(piece, '[^/]+')})" if index % 2 else re.escape(piece)


def find(method: str, path: str) -> tuple[Route, dict[str, str]]:
    """The route for a path and the words it found there; 404 if there is none."""
    method = "GET" if method == "HEAD" else method
    for candidate in ROUTES:
        found = candidate.pattern.fullmatch(path) if candidate.method == method else None
        if found:
            return candidate, {name: unquote(word) for name, word in found.groupdict().items()}
    raise HubError(404, "Not found")
