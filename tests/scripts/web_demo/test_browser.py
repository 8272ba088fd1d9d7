"""The page in Chromium (`make browser`): what is written is shown, and nothing else runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import own_runs
import qkv
from qkv.scripts.cli import main

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=alert(1)> שלום 😀"
Runs = Callable[[str], Path]


class Tab:
    """A page in a tab, with all that its console says and all that it asks for."""

    def __init__(self, chromium: Any, url: str, **options: Any) -> None:
        self.page = chromium.new_context(**options).new_page()
        self.url, self.shown, self.said, self.asked = url, "", list[str](), list[str]()
        self.page.on("console", lambda message: self.said.append(message.text))
        self.page.on("pageerror", lambda error: self.said.append(str(error)))
        self.page.on("dialog", lambda dialog: self.said.append(dialog.message))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(url)
        self.page.wait_for_selector("#submit:not([disabled])")

    def settle(self) -> Any:
        """Wait for a prediction and the page of its attention, another one than the last, and return its frame."""
        shown = self.page.wait_for_selector(f"iframe:not([src='{self.shown}'])")
        self.shown = shown.get_attribute("src")
        frame = shown.content_frame()
        frame.wait_for_selector("body[data-ready]")
        return frame

    def check(self) -> None:
        """Nothing was said, nothing came from elsewhere, and nothing is wider than the screen or its frame."""
        assert self.said == []
        assert all(asked.startswith((self.url, "blob:", "data:")) for asked in self.asked)
        for frame in self.page.frames:
            assert frame.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_a_text_is_shown_as_a_text(chromium: Any, run_of: Runs, scheme: Any, width: int) -> None:
    with qkv.demo(str(run_of("texts")), port=0) as served:
        tab = Tab(chromium, served.url, color_scheme=scheme, viewport={"width": width, "height": 800})
        tab.page.fill("#text", HOSTILE)
        tab.page.fill("#max_new_tokens", "3")
        tab.page.click("#submit")
        frame = tab.settle()
        assert tab.page.inner_text("#answer").startswith(HOSTILE)
        assert tab.page.locator("#answer img").count() == frame.locator("img").count() == 0
        assert "".join(frame.locator(".queries li").all_inner_texts()).startswith("<img␣src=x")
        tab.check()
        assert frame.evaluate("origin") == "null"  # so that it reaches nothing of the page around it
        tab.page.fill("#text", "x" * 10_001)
        tab.page.click("#submit")
        tab.page.wait_for_selector("#error:not([hidden])")
        assert "at most 10,000" in tab.page.inner_text("#error")
        tab.check()


@pytest.fixture
def digits(tmp_path: Path) -> Path:
    """A run of images whose labels can be drawn."""
    table = own_runs.data("images", tmp_path)
    table.write_text(table.read_text().replace('"good"', '"0"').replace('"bad"', '"1"'))
    assert main(["train", str(table), *own_runs.KINDS["images"], "holdout=0", f"out={tmp_path / 'run'}"]) == 0
    return tmp_path / "run"


def test_a_character_is_drawn(chromium: Any, digits: Path) -> None:
    with qkv.demo(str(digits), port=0) as served:
        tab = Tab(chromium, served.url)
        tab.page.click("#submit")
        assert tab.page.inner_text("#error") == "draw a character, or choose an image"
        box = tab.page.locator("#canvas").bounding_box()
        tab.page.mouse.move(box["x"] + 60, box["y"] + 40)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + 90, box["y"] + 200, steps=4)
        tab.page.mouse.up()
        frame = tab.settle()
        assert set(tab.page.locator(".score > span:nth-child(2)").all_inner_texts()) == {"0", "1"}
        tab.page.focus("#readout a")
        tab.page.keyboard.press("Tab")  # into the frame
        tab.page.keyboard.press("ArrowRight")
        assert frame.inner_text("[role=tab][aria-selected=true]") == "Matrix"
        with tab.page.expect_popup() as opened:
            tab.page.click("#readout a")
        opened.value.wait_for_selector("body[data-ready]")
        tab.check()


def test_sound_is_recorded_and_chosen(chromium: Any, run_of: Runs, runs_folder: Path) -> None:
    with qkv.demo(str(run_of("ctc")), port=0) as served:
        tab = Tab(chromium, served.url, permissions=["microphone"])
        tab.page.click("#record")
        tab.page.wait_for_timeout(1500)
        tab.page.click("#record")
        tab.settle()
        assert tab.page.locator("#media audio").count() == 1
        tab.page.set_input_files("#file", str(runs_folder / "data-ctc" / "files" / "0.wav"))
        tab.settle()
        tab.check()


def test_objects_are_in_boxes(chromium: Any, run_of: Runs, runs_folder: Path) -> None:
    with qkv.demo(str(run_of("boxes")), port=0) as served:
        tab = Tab(chromium, served.url)
        tab.page.locator("#threshold").fill("0")
        tab.page.set_input_files("#file", str(runs_folder / "data-boxes" / "files" / "0.png"))
        tab.settle()
        assert tab.page.locator("#answer .score").count() == 5 and tab.page.locator("#media canvas").count() == 1
        tab.check()
