"""The page in Chromium (`make browser`): a text and a drawing are answered, with a frame that reaches nothing outside."""

from pathlib import Path
from typing import Any

import pytest

import qkv
import stock_folders

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)> warm"


@pytest.mark.parametrize("kind", ["bert", "vit"])
def test_an_input_is_answered(kind: str, chromium: Any, tmp_path: Path) -> None:
    config = (stock_folders.bert if kind == "bert" else stock_folders.vit)(tmp_path / kind) / "config.json"
    config.write_text(config.read_text().replace('"bad"', '"0"').replace('"good"', '"1"'))
    served = qkv.demo(str(config.parent))
    page = chromium.new_page()
    dialogs, asked = list[str](), list[str]()
    page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    page.on("request", lambda request: asked.append(request.url))
    page.goto(served.local_url)
    if kind == "bert":
        page.get_by_label("Text").fill(HOSTILE)
    else:
        page.get_by_role("button", name="Brush", exact=True).click()
        box = page.locator("canvas").last.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(*middle)
        page.mouse.down()
        page.mouse.move(middle[0] + 20, middle[1] + 60, steps=4)
        page.mouse.up()
        page.wait_for_timeout(1000)
    page.get_by_role("button", name="Predict").click()
    frame = page.wait_for_selector("iframe[srcdoc]").content_frame()
    frame.wait_for_selector("body[data-ready]")
    assert frame.evaluate("origin") == "null" and dialogs == []
    assert all(url.startswith((served.local_url, "blob:", "data:")) for url in asked)
    served.close()
