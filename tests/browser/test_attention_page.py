"""The page of attention in a browser: every view on a desktop and a phone, keys and clicks, and hostile tokens."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from attention_examples import TABS, example

from families.attention_pages import HOSTILE

pytestmark = pytest.mark.slow
Open = Callable[..., Any]


@pytest.fixture
def page_of(tmp_path: Path, open_page: Open) -> Open:
    """Open the page of an example, ready."""

    def opened(name: str, device: str = "desktop") -> Any:
        example(name).save(tmp_path / "page.html")
        page = open_page(tmp_path / "page.html", device)
        page.wait_for_selector("body[data-ready]")
        return page

    return opened


def chosen(page: Any, control: str) -> str:
    """The text that a control shows."""
    return page.locator(f"#{control} option:checked").inner_text()


def status(page: Any) -> str:
    """The status line, without the characters that isolate its parts from each other."""
    return re.sub("[\u2068\u2069]", "", page.locator("#status").inner_text())


@pytest.mark.parametrize("device", ["desktop", "phone"])
@pytest.mark.parametrize("name", TABS)
def test_every_view_fits_its_device(name: str, device: str, page_of: Open) -> None:
    page = page_of(name, device)
    tabs = page.locator("[role=tab]")
    assert tabs.all_inner_texts() == TABS[name]
    for number in range(len(TABS[name])):
        tabs.nth(number).click()
        assert tabs.nth(number).get_attribute("aria-selected") == "true"
        assert page.locator("#view > *").count() and page.locator("#status").inner_text()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_chain_is_turned_by_the_mouse_and_named_by_the_map(page_of: Open) -> None:
    page = page_of("fold")
    drawn = "document.querySelector('canvas.space').toDataURL()"
    before, place = page.evaluate(drawn), page.locator("canvas.space").bounding_box()
    page.mouse.move(place["x"] + 50, place["y"] + 50)
    page.mouse.down()
    page.mouse.move(place["x"] + 150, place["y"] + 90, steps=3)
    page.mouse.up()
    turned = page.evaluate(drawn)
    page.locator("canvas.space").press("ArrowLeft")
    assert len({before, turned, page.evaluate(drawn)}) == 3
    page.locator("canvas.map").press("ArrowRight")
    points = example("fold").structure["points"]
    far = sum((one - other) ** 2 for one, other in zip(*points[:2], strict=True)) ** 0.5
    assert f"{far:.1f} Å apart" in status(page)


def test_keys_move_queries_layers_and_heads(page_of: Open) -> None:
    page = page_of("translation")
    view = example("translation")
    cross = next(stack for stack in view.stacks if stack.name == "cross")
    page.locator("[role=listbox]").focus()
    for key, query in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", 6), ("ArrowDown", 6), ("Home", 0)):
        page.keyboard.press(key)
        assert page.locator("[role=listbox]").get_attribute("aria-activedescendant") == f"query{query}"
        best = int(cross.weights[-1].mean(0)[query].argmax())
        assert f"{cross.queries.labels[query]} attends to {cross.keys.labels[best]}: " in status(page)
    assert chosen(page, "layer") == "1" and chosen(page, "head") == "mean"
    page.keyboard.press("Shift+L")
    page.keyboard.press("h")
    page.keyboard.press("h")
    assert chosen(page, "layer") == "0" and chosen(page, "head") == "1"
    weight = cross.weights[0, 1, 0].max()
    shown = float(re.search(r"attends to [^:]*: ([\d.]+)", status(page))[1])
    assert abs(shown - weight) <= weight / 255 + 0.006
    page.keyboard.press("Shift+H")
    assert chosen(page, "head") == "0"
    for number, tab in enumerate(TABS["translation"], 1):
        page.keyboard.press(str(number))
        assert page.locator("[role=tab][aria-selected=true]").inner_text() == tab


def test_causal_attention_opens_on_the_last_token_with_a_legend(page_of: Open) -> None:
    page = page_of("generation")
    (stack,) = example("generation").stacks
    last = len(stack.queries) - 1
    assert page.locator("[role=listbox]").get_attribute("aria-activedescendant") == f"query{last}"
    assert page.locator(".keys li.masked").count() == 0
    page.keyboard.press("Shift+L")
    page.locator("[role=listbox]").focus()
    page.keyboard.press("Home")
    assert page.locator(".keys li.masked").count() == last
    prompt = stack.keys.prompt
    assert page.locator(".keys li.written").inner_text() == stack.keys.labels[prompt]
    for number in range(1, 5):
        page.keyboard.press(str(number))
        assert page.locator("#view .legend").count()


def test_tabs_move_by_arrows_and_show_where_the_focus_is(page_of: Open) -> None:
    page = page_of("translation")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
    for key, name in (("ArrowRight", "Alignment"), ("ArrowLeft", "Tokens"), ("ArrowLeft", "Overview")):
        page.keyboard.press(key)
        assert page.evaluate("document.activeElement.textContent") == name
    assert (
        page.locator("[tabindex='0']:not([role=tab]):not([aria-label]), canvas[role=img]:not([aria-label])").count()
        == 0
    )


def test_the_matrix_is_driven_by_keys_and_pointer(page_of: Open) -> None:
    page = page_of("translation")
    page.keyboard.press("2")
    matrix = page.locator("canvas[role=img]")
    matrix.focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    cross = next(stack for stack in example("translation").stacks if stack.name == "cross")
    weight = cross.weights[-1].mean(0)[1, 2]
    told = status(page).splitlines()[-1]
    assert told.startswith(f"{cross.queries.labels[1]} attends to {cross.keys.labels[2]}: ")
    assert abs(float(told.rpartition(" ")[2]) - weight) <= 0.006
    cells = page.locator(".heads .cell")
    assert cells.count() == 2 * 5
    cells.nth(3).click()
    assert (chosen(page, "layer"), chosen(page, "head")) == ("0", "2")
    page.locator(".heads").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowLeft")
    assert (chosen(page, "layer"), chosen(page, "head")) == ("1", "1")
    before = status(page)
    box = matrix.bounding_box()
    page.mouse.click(box["x"] + box["width"] - 10, box["y"] + box["height"] - 10)
    assert status(page) != before and f"{cross.queries.labels[-1]} attends to" in status(page)


def test_a_patch_is_chosen_by_click_and_arrows(page_of: Open) -> None:
    page = page_of("image")
    (stack,) = example("image").stacks
    assert "class attends to" in status(page)
    box = page.locator(".picture.choice").bounding_box()
    page.mouse.click(box["x"] + 3, box["y"] + 3)
    assert "(1, 1) attends to" in status(page)
    page.locator("[aria-label^='Place of the query']").focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert "(2, 2) attends to" in status(page)
    row = stack.weights[-1].mean(0)[stack.queries.labels.index("(2, 2)")]
    assert f"attends to {stack.keys.labels[int(row.argmax())]}: " in status(page)
    page.locator(".chips li").first.click()
    assert "class attends to" in status(page)


def test_even_attention_is_a_pale_veil_over_the_picture(page_of: Open) -> None:
    page = page_of("even")
    alphas = page.evaluate(
        "(() => { const canvas = document.querySelector('.picture canvas'); return [...canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, canvas.height).data].filter((_, place) => place % 4 === 3); })()"
    )
    keys = len(example("even").stacks[0].keys)
    assert len(set(alphas)) == 1 and 0 < alphas[0] < 255 / 4
    assert float(page.locator("#view .legend").inner_text().split()[-1]) >= 5 / keys


def test_an_object_is_framed(page_of: Open) -> None:
    page = page_of("boxes")
    cross = next(stack for stack in example("boxes").stacks if stack.name == "cross")
    page.locator(".chips li").nth(2).click()
    shown = page.evaluate("(({style}) => [style.left, style.top])(document.querySelector('.frame'))")
    assert [float(each.rstrip("%")) / 100 for each in shown] == pytest.approx(cross.queries.boxes[2][:2], abs=1e-3)
    assert f"{cross.queries.labels[2]} attends to" in status(page)


def test_a_word_is_shown_above_its_sound(page_of: Open) -> None:
    page = page_of("speech")
    cross = next(stack for stack in example("speech").stacks if stack.name == "cross")
    page.locator("[role=listbox]").focus()
    page.keyboard.press("ArrowRight")
    row = cross.weights[-1].mean(0)[1]
    assert f"attends to {cross.keys.labels[int(row.argmax())]}: " in status(page)
    peak = page.evaluate(
        "(() => { const canvas = document.querySelector('canvas.over'); const data = canvas.getContext('2d')"
        ".getImageData(0, 0, canvas.width, 1).data; let best = 0; for (let i = 0; i < canvas.width; i++)"
        " if (data[i * 4 + 3] > data[best * 4 + 3]) best = i; return [canvas.width, best]; })()"
    )
    assert peak == [len(cross.keys), int(row.argmax())]


def test_the_film_steps(page_of: Open) -> None:
    page = page_of("generation")
    page.keyboard.press("3")
    steps = example("generation").film["steps"]
    assert page.locator(".film span").inner_text() == f"1 of {len(steps)}"
    page.locator("#step").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".new").inner_text() == steps[1]["token"]
    assert page.locator(".chips li:not(.later)").count() == steps[1]["row"] + 1
    assert f"{steps[1]['probability']:.2f}"[:3] in page.locator(".best").inner_text()


def test_the_overview_chooses_a_head(page_of: Open) -> None:
    page = page_of("generation")
    page.keyboard.press("4")
    (stack,) = example("generation").stacks
    cells = page.locator("table.numbers").first.locator("td")
    assert [float(text) for text in cells.all_inner_texts()] == pytest.approx(stack.entropy.flatten(), abs=0.0051)
    page.locator("table.numbers").first.focus()
    page.keyboard.press("ArrowRight")
    assert (chosen(page, "layer"), chosen(page, "head")) == ("1", "1")
    assert f"distance {stack.distance[1, 1]:.2f}"[:-1] in status(page)


def test_hostile_tokens_are_text(page_of: Open) -> None:
    page = page_of("hostile")
    texts = page.locator(".column.queries li").all_inner_texts()
    plain = [each for each in HOSTILE if "<" in each or each in ("שלום", "&amp;")]
    assert set(plain) <= set(texts)
    assert "⟨U+202E⟩abc" in texts and "⟨U+200B⟩" in texts and "a⏎b" in texts and "👩\u200d🚀" in texts
    assert page.locator("#title").inner_text() == "</title><script>alert(2)</script>"
    assert page.locator("#notes").inner_text() == "<b>a note</b>"
    for number in range(1, 5):
        page.keyboard.press(str(number))
        assert page.locator("script").count() == 2 and page.locator("body b").count() == 0


def test_a_notebook_shows_the_page(tmp_path: Path, open_page: Open) -> None:
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{example('image')._repr_html_()}", encoding="utf-8")
    frame = open_page(tmp_path / "notebook.html").frame_locator("iframe")
    frame.locator("body[data-ready]").wait_for()
    assert frame.locator("[role=tab]").all_inner_texts() == TABS["image"]


def test_the_program_runs_only_as_it_was_written(tmp_path: Path, chromium: Any) -> None:
    text = example("image").page()[0].replace("start();\n", "start();\ndocument.title = 'changed';\n")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    page = chromium.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.title() != "changed" and page.locator("[role=tab]").count() == 0
    page.close()
