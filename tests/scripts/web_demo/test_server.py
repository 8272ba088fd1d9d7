"""The page over HTTP: every kind of run is tried, and what is hostile is refused in a sentence."""

import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import own_runs
import qkv
import stock_folders
from qkv.scripts.web_demo import requests
from qkv.scripts.web_demo.page_facts import FOLDER
from qkv.scripts.web_demo.server import Demo, headers
from web_demo import client
from web_demo.client import get, post

Runs = Callable[[str], Path]
ANSWERS = {
    "numbers": "number", "tags": "entities", "boxes": "boxes", "classes": "scores", "pairs": "scores",
    "masked": "scores", "images": "scores", "captions": "scores", "folds": "scores", "encoder-folds": "scores",
}  # fmt: skip


@pytest.fixture(scope="module")
def page_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Demo]]:
    """Serve the page of a stock model, the same to all tests."""
    folder = tmp_path_factory.mktemp("models")

    def served(kind: str) -> Demo:
        return pages.enter_context(qkv.demo(str(getattr(stock_folders, kind)(folder / kind)), port=0))

    with ExitStack() as pages:
        yield cache(served)


@pytest.fixture
def page(page_of: Callable[[str], Demo]) -> Demo:
    """The page of BERT for two classes."""
    return page_of("bert")


@pytest.fixture(scope="module")
def picture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_runs.data("images", tmp_path_factory.mktemp("images"), 1).parent / "files" / "0.png"


def tried(page: Demo, request: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """The answer to a request, and the page of its attention."""
    status, answer = post(f"{page.url}/predict", request)
    assert status == 200, answer
    address = answer.pop("attention")
    assert get(f"{page.url}/{address}")[0] == 404  # until it is made
    assert post(f"{page.url}/attention", {"page": address}) == (200, {"page": address})
    status, given, content = get(f"{page.url}/{address}")
    assert (status, given["Content-Type"]) == (200, "text/html; charset=utf-8")
    return answer, content.decode()


def attended(model: Path, given: str | Path, **options: Any) -> str:
    return qkv.attend(model, given, **options).page()[0]


@pytest.mark.slow
@pytest.mark.parametrize("kind", own_runs.KINDS)
def test_every_kind_is_tried(kind: str, run_of: Runs, runs_folder: Path) -> None:
    run, request = run_of(kind), client.request_of(kind, runs_folder / f"data-{kind}")
    with qkv.demo(str(run), port=0) as page:
        answer, content = tried(page, request)
    assert ANSWERS.get(kind, "text") in answer
    assert all(0 <= score["score"] <= 1 for score in answer.get("scores", ()))
    options = {"max_new_tokens": 3} if kind in ("targets", "responses", "texts") else {}
    if kind in ("pairs", "captions"):
        options = {"pair": request["pair"] if kind == "pairs" else answer["scores"][0]["label"]}
    if kind == "speech":
        options = {"pair": answer["text"]}
    files = list((runs_folder / f"data-{kind}").glob("files/0.*"))
    assert content == attended(run, files[0] if files else request["text"], **options)


@pytest.mark.parametrize("kind", ["gpt2", "vit", "masked_bert"])
def test_a_stock_model_is_tried(kind: str, picture: Path, page_of: Callable[[str], Demo]) -> None:
    page = page_of(kind)
    request = {"text": "warm {mask} dull", "file": client.file(picture), "options": {"max_new_tokens": 3}}
    answer, content = tried(page, request)
    options = {"max_new_tokens": 3} if kind == "gpt2" else {}
    assert content == attended(page.source.folder, picture if kind == "vit" else request["text"], **options)
    assert tried(page, request)[0] == answer  # the model runs as before


def test_the_page_of_attention_reaches_nothing(page: Demo) -> None:
    _, content = tried(page, {"text": "</script><img src=x onerror=alert(1)>"})
    assert content == attended(page.source.folder, "</script><img src=x onerror=alert(1)>")
    address = post(f"{page.url}/predict", {"text": "warm"})[1]["attention"]
    post(f"{page.url}/attention", {"page": address})
    policy = get(f"{page.url}/{address}")[1]["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "connect-src" not in policy
    assert policy.endswith("; sandbox allow-scripts; frame-ancestors 'self'")
    assert "frame-src 'self'" in get(page.url)[1]["Content-Security-Policy"]


def test_why_there_is_no_attention_is_a_sentence(page_of: Callable[[str], Demo], picture: Path) -> None:
    page = page_of("swin")
    status, answer = post(f"{page.url}/predict", {"file": client.file(picture)})
    assert status == 200 and len(answer["scores"]) == 2
    refused = post(f"{page.url}/attention", {"page": answer["attention"]})
    why = "SwinForImageClassification attends within windows of its input, which are not shown"
    assert refused == (400, {"error": why}) and get(f"{page.url}/{answer['attention']}")[0] == 404


def test_the_page_and_its_files(page: Demo) -> None:
    for path in ("/", "/page.html", "/page.css", *(f"/{each.name}" for each in FOLDER.glob("*.js"))):
        status, given, content = get(page.url + path)
        assert status == 200 and content and given["X-Content-Type-Options"] == "nosniff"
        assert given["Content-Security-Policy"].startswith("default-src 'none'")
    facts = json.loads(get(f"{page.url}/facts")[2])
    assert facts["task"] == "text-classification" and facts["name"] == "bert" and not facts["draws"]
    assert str(page.source.folder.parent) not in json.dumps(facts)
    assert page.url in repr(page)


def test_the_page_loads_nothing_from_elsewhere_and_writes_no_html() -> None:
    for path in FOLDER.iterdir():
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(https?:)?//\w+\.\w|innerHTML|insertAdjacentHTML|document\.write|eval\(", text), path
        assert {FOLDER / name for name in re.findall(r'from "\./(.*?)"', text)} <= set(FOLDER.iterdir())


@pytest.mark.parametrize(
    "path", ["/../config.json", "/..%2f..%2fetc/passwd", "//etc/passwd", "/page/page.js", "/%00", "/model.safetensors"]
)
def test_no_other_file_is_reached(path: str, page: Demo) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.server_address[1])
    connection.putrequest("GET", path, skip_accept_encoding=True)
    connection.endheaders()
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())) == (404, {"error": "there is no such page; the page is /"})
    connection.close()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"Host": "evil.example"}, "host 'evil.example' is not 127.0.0.1"),
        ({"Host": "evil.example:80"}, "host 'evil.example' is not"),
        ({"Host": "127.0.0.1.evil.example"}, "is not 127.0.0.1"),
        ({"Origin": "https://evil.example"}, "origin 'https://evil.example' is not this page"),
        ({"Origin": "null"}, "origin 'null'"),
        ({"Origin": "http://localhost:1"}, "origin 'http://localhost:1'"),
    ],
)
def test_another_site_is_refused(given: dict[str, str], message: str, page: Demo) -> None:
    status, answer = post(f"{page.url}/predict", {"text": "warm"}, client.JSON | given)
    assert status == 403 and message in answer["error"]
    assert get(f"{page.url}/facts", **given)[0] == 403


def test_the_page_itself_is_answered(page: Demo) -> None:
    port = page.server_address[1]
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", f"LOCALHOST:{port}"):
        given = client.JSON | {"Host": host, "Origin": f"http://{host}"}
        assert post(f"{page.url}/predict", {"text": "warm"}, given)[0] == 200


ATTACKS: list[tuple[Any, int, str]] = [
    ({"text": "<script>alert(1)</script>"}, 200, ""),
    ({"text": "שלום مرحبا \u202e 😀👩‍👩‍👧\x00\u200b"}, 200, ""),
    ({"text": "warm " * 2000}, 200, ""),
    ({"text": "warm " * 2000 + "x"}, 413, "text has 10,001 characters, at most 10,000"),
    ({"text": "  \n"}, 400, "the text cannot be used: empty"),
    ({"text": ["warm"]}, 400, "text is list, expected a text"),
    ({}, 400, "empty"),
    (["text"], 400, "the request is list, expected an object"),
    (b'{"text": "\\ud800"}', 400, "half a character"),
    (b'{"text": NaN}', 400, "cannot be read as JSON"),
    (b"[" * 100_000, 400, "cannot be read as JSON"),
    (b"\xff\xfe", 400, "cannot be read as JSON"),
    (b"", 400, "cannot be read as JSON"),
    ({"text": "warm", "options": {"labels": "/etc/passwd"}}, 400, "there is no option 'labels'"),
    ({"text": "warm", "options": {"temperature": "hot"}}, 400, "temperature='hot' is not a number"),
    ({"text": "warm", "options": {"temperature": 1e999}}, 400, "cannot be read as JSON"),
    ({"text": "warm", "options": {"temperature": "inf"}}, 400, "no finite number"),
    ({"text": "warm", "options": {"max_new_tokens": 10**6}}, 400, "max_new_tokens=1000000 must be at most 256"),
    ({"text": "warm", "options": []}, 400, "options is list"),
]


@pytest.mark.parametrize(("content", "status", "message"), ATTACKS, ids=range(len(ATTACKS)))
def test_hostile_input_is_harmless(content: Any, status: int, message: str, page: Demo) -> None:
    told, answer = post(f"{page.url}/predict", content)
    assert told == status and message in answer.get("error", ""), answer
    assert "\n" not in answer.get("error", "") and "Traceback" not in answer.get("error", "")
    assert post(f"{page.url}/predict", {"text": "warm"})[0] == 200  # and it goes on


@pytest.mark.parametrize(
    ("content", "status", "message"),
    [
        ({}, 400, "there is no file"),
        ({"file": "/etc/passwd0"}, 400, "the image cannot be used"),  # what is base64 is no name of a file
        ({"file": {"path": "/etc/passwd"}}, 400, "there is no file"),
        ({"file": "*"}, 400, "file is not in base64"),
        ({"file": client.file(b"GIF89a" + b"\0" * 100)}, 400, "the image cannot be used"),
        ({"file": client.file(b"<svg onload='alert(1)'/>")}, 400, "no image of a known format"),
        (b"x" * (requests.MOST_BYTES + 1), 413, "bytes are more than 16,777,216"),
    ],
)
def test_hostile_files_are_harmless(content: Any, status: int, message: str, page_of: Callable[[str], Demo]) -> None:
    told, answer = post(f"{page_of('vit').url}/predict", content)
    assert told == status and message in answer["error"], answer


def test_what_is_no_request_of_the_page_is_refused(page: Demo) -> None:
    assert post(f"{page.url}/predict", {"text": "warm"}, {"Content-Type": "text/plain"})[0] == 415
    assert post(f"{page.url}/shutdown", {})[0] == 404
    assert raw(page, b"PUT / HTTP/1.1\r\nHost: localhost\r\n\r\n").startswith(b"HTTP/1.1 501")
    chunked = (
        b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked"
    )
    assert raw(page, chunked + b"\r\nContent-Length: 4\r\n\r\n0\r\n\r\n").startswith(b"HTTP/1.1 411")
    assert raw(page, b"\x16\x03\x01\x02\x00\x01\r\n\r\n").startswith(b'{"error": "Bad request')  # TLS
    # What is left of a refused request is no request of its own.
    both = b"POST /predict HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 40\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
    assert raw(page, both).count(b"HTTP/1.1") == 1


def raw(page: Demo, sent: bytes) -> bytes:
    """What comes back for some bytes until the server closes, or says no more."""
    with socket.create_connection(("127.0.0.1", page.server_address[1]), timeout=5) as connection:
        connection.sendall(sent)
        received = b""
        while data := connection.recv(2**16):
            received += data
        return received


def test_a_failure_of_the_model_is_a_sentence(
    page: Demo, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:

    def broken(*given: Any, **named: Any) -> None:
        raise RuntimeError("secret /home/me")

    monkeypatch.setattr(page.source.model, "forward", broken)
    status, answer = post(f"{page.url}/predict", {"text": "warm"})
    assert status == 500 and "RuntimeError" in answer["error"] and "/home/me" not in answer["error"]
    assert "secret /home/me" in capsys.readouterr().err


def test_a_port_in_use_is_a_sentence(page: Demo) -> None:
    with pytest.raises(OSError, match="give another --port or --host"):
        qkv.demo(str(page.source.folder), port=page.server_address[1])
    with pytest.raises(ValueError, match="port=70000 is not one of 0 to 65535"):
        qkv.demo(str(page.source.folder), port=70000)


def test_only_the_hub_shows_a_public_page_in_a_frame() -> None:
    assert headers("127.0.0.1", "a")["Content-Security-Policy"] == "a; frame-ancestors 'self'"
    assert "frame-ancestors 'self' https://huggingface.co" in headers("0.0.0.0", "a")["Content-Security-Policy"]
