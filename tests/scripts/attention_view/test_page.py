"""The page is one file that fetches nothing and runs its own program alone."""

import base64
import hashlib
import json
import re

from families.attention_pages import data_of
from qkv.scripts.attention_view import page as pages
from qkv.scripts.attention_view.page import as_json, page


def made() -> str:
    return page("a </title> & title", [], {"answer": "", "notes": [], "film": None})


def test_the_policy_names_the_program_and_the_styles_of_the_page() -> None:
    text = made()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]+)"', text)
    for tag, rule in (("script", "script-src"), ("style", "style-src")):
        (content,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy


def test_nothing_is_fetched_and_no_html_is_made_of_texts() -> None:
    program = pages.resource("page.js")
    for name in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "fetch(", "XMLHttp"):
        assert name not in program
    namespaces = {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xhtml"}
    assert set(re.findall(r"(?:https?:)?//[\w.]+/[^\s\"']*", made())) <= namespaces


def test_data_ends_no_element() -> None:
    given = {"a": "</script><!--", "b": "\u2028\ud800&"}
    text = as_json(given)
    assert not set("<>&") & set(text) and text.isascii() and json.loads(text) == given
    assert data_of(made())["title"] == "a </title> & title"
    assert "<title>a &lt;/title&gt; &amp; title</title>" in made()
