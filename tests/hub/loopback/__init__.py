"""A Hub in memory, on loopback, for tests: it speaks the Hub's HTTP API as the real clients use it.

It agrees with the source of the clients and is driven through them only; where huggingface.co differs from what they
expect, it is not evidence. It listens on 127.0.0.1 in threads of the test's own process.
"""

from loopback.hub import Hub as Hub
from loopback.hub import failing as failing
from loopback.server import serving as serving
