"""The pages of `qkv attend` for the last answers, each made when it is asked for."""

from secrets import token_urlsafe
from typing import Any

from qkv.scripts.attention_view.reading import Reading
from qkv.scripts.attention_view.view import title_of, view_of
from qkv.scripts.prediction.source import Source
from qkv.scripts.web_demo.requests import RefusedError, text_of

KEPT = 16  # answers whose attention can be asked for


class AttentionPages:
    """The pages of attention of the last answers.

    Nobody guesses their addresses, for a page holds what a person tried, and others may use the same server.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self.kept: dict[str, Reading | bytes] = {}

    def keep(self, reading: Reading) -> str:
        """Keep what was read for an answer instead of the oldest, and return the address of its page."""
        address = f"attention/{token_urlsafe(16)}"
        self.kept[address] = reading
        while len(self.kept) > KEPT:
            del self.kept[next(iter(self.kept))]
        return address

    def make(self, request: dict[str, Any]) -> dict[str, Any]:
        """Make the page of an answer; ValueError where its attention cannot be shown."""
        address = text_of(request, "page")
        kept = self.kept.get(address)
        if kept is None:
            raise RefusedError(404, "the attention of this answer is no longer kept; predict again")
        if isinstance(kept, Reading):
            view = view_of(title_of(self.source), kept, None, None)
            self.kept[address] = view.page()[0].encode()
        return {"page": address}

    def page(self, address: str) -> bytes | None:
        """Return a page that was made; None where there is none."""
        kept = self.kept.get(address)
        return kept if isinstance(kept, bytes) else None
