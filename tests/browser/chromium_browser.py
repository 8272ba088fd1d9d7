"""Chromium without a window, and with a microphone that hears beeps, for tests of pages: `make browser`."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

CHROMIUM = os.environ.get("QKV_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", "--force-color-profile=srgb", "--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream"]  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A browser with a profile of its own."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="Playwright is not installed; make browser installs it"
    )
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed; apt-get install chromium, or name one in QKV_CHROMIUM")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()
