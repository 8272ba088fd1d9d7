"""Files opened in Chromium as devices show them: `make browser`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

# Width, height and colours of a desktop and of a phone.
DEVICES = {"desktop": (1000, 800, "light"), "phone": (390, 844, "dark")}


@pytest.fixture
def open_page(chromium: Any) -> Iterator[Callable[..., Any]]:
    """Open a file as a device shows it; at the end nothing was fetched, and the console has no error."""
    contexts, wrong = [], []

    def opened(path: Path, device: str = "desktop") -> Any:
        width, height, scheme = DEVICES[device]
        context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: wrong.append(message.text))
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("dialog", lambda dialog: wrong.append(dialog.message))
        local = ("file:", "data:", "blob:", "about:")
        page.on("request", lambda request: None if request.url.startswith(local) else wrong.append(request.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
