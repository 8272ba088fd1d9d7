"""What is tried again, after how long, and what is said in the end."""

import json
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from email.utils import format_datetime
from typing import Any

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from hypothesis import given
from hypothesis import strategies as st

from qkv.scripts.publishing.hub import retry
from qkv.scripts.publishing.hub.retry import Patience, PublishError, asked_wait, persistently, temporary


def answer(status: int, said: str = "no", **headers: str) -> HfHubHTTPError:
    """What the client raises for an answer of the Hub."""
    request = httpx2.Request("POST", "http://hub.example/api")
    response = httpx2.Response(
        status, request=request, headers={key.replace("_", "-"): headers[key] for key in headers}
    )
    return HfHubHTTPError("long\ntext", response=response, server_message=said)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    seconds: list[float] = []
    monkeypatch.setattr(retry.time, "sleep", seconds.append)
    return seconds


PASSING = {
    "server error": answer(503),
    "too many": answer(429),
    "stale": answer(412),
    "while a large file was sent": caused(RuntimeError("Error while uploading 'x'"), answer(500)),
    "no server": httpx2.ConnectError("refused"),
    "through Xet": ConnectionError("CAS"),
    "cut off": httpx2.RemoteProtocolError("disconnected"),
    "slow": TimeoutError("slow"),
    "closed under another thread": AttributeError("'NoneType' object has no attribute 'send'"),
    "closed client": RuntimeError("Cannot send a request, as the client has been closed."),
    "page of a gateway": json.JSONDecodeError("Expecting value", "<html>", 0),
}
LASTING = {
    "refused": answer(403),
    "while a large file was sent": caused(RuntimeError("Error while uploading 'x'"), answer(403)),
    "wrong card": ValueError("Invalid metadata in README.md."),
    "offline": OfflineModeIsEnabled("offline"),
    "no login": LocalTokenNotFoundError("token"),
    "no file": FileNotFoundError("x"),
    "ours": KeyError("x"),
    "said already": PublishError("x"),
}


@pytest.mark.parametrize("error", PASSING.values(), ids=PASSING)
def test_what_may_pass_is_tried_until_it_does(error: Exception, slept: list[float]) -> None:
    results: Iterator[Any] = iter([error, error, "done"])

    def action() -> str:
        result = next(results)
        if isinstance(result, Exception):
            raise result
        return result

    assert temporary(error) and persistently(action, "a/b", Patience(first_wait=2)) == "done"
    assert slept == [2, 4]


@pytest.mark.parametrize("error", LASTING.values(), ids=LASTING)
def test_what_will_not_pass_is_raised_at_once(error: Exception, slept: list[float]) -> None:
    def action() -> None:
        raise error

    assert not temporary(error)
    with pytest.raises(Exception) as raised:
        persistently(action, "a/b", Patience())
    assert slept == [] and "\n" not in str(raised.value)
    assert raised.value is not raised.value.__cause__


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (
            answer(403, "read-only"),
            "the login that was used may not write to a/b; use a token with write access to a, or ",
        ),
        (OfflineModeIsEnabled("x"), "HF_HUB_OFFLINE is set, so a/b cannot be reached; unset it to publish"),
        (LocalTokenNotFoundError("x"), "nobody is logged in to the Hub, so a/b cannot be written; run `hf auth login`"),
        (answer(418, "teapot"), "the Hub refuses what was sent to a/b (HTTP 418: teapot)"),
        (answer(412), "a/b refuses this commit because somebody else has pushed; look at it"),
        (
            answer(503, "busy\nnow"),
            "a/b could not be published in 2 attempts, the last of which ended with HTTP 503: busy ",
        ),
        (
            ConnectionError("gone"),
            "a/b could not be published in 2 attempts, the last of which ended with ConnectionError",
        ),
    ],
)
def test_the_end_is_one_sentence(error: Exception, sentence: str, slept: list[float]) -> None:
    def action() -> None:
        raise error

    with pytest.raises(PublishError) as raised:
        persistently(action, "a/b", Patience(attempts=2))
    assert str(raised.value).startswith(sentence) and "\n" not in str(raised.value)


def test_the_hub_says_how_long_to_wait() -> None:
    later = format_datetime(datetime.now(timezone.utc) + timedelta(hours=1), usegmt=True)
    assert asked_wait(answer(429, Retry_After="7")) == 7
    assert asked_wait(answer(503, Retry_After=later)) == pytest.approx(3600, abs=60)
    assert asked_wait(answer(503, Retry_After="soon")) is None
    assert asked_wait(answer(429, RateLimit='"api";r=0;t=55')) == 55
    assert asked_wait(answer(429, RateLimit='"api";r=3;t=55')) is None
    assert asked_wait(caused(RuntimeError("x"), answer(429, Retry_After="7"))) == 7
    assert asked_wait(ConnectionError("x")) is None


@given(st.integers(1, 40), st.floats(0.1, 5), st.floats(5, 300))
def test_waits_double_up_to_the_longest(attempt: int, first: float, longest: float) -> None:
    patience = Patience(first_wait=first, longest_wait=longest)
    assert patience.wait(attempt, OSError()) == min(longest, first * 2 ** (attempt - 1))
    assert patience.wait(attempt, answer(429, Retry_After="9999")) == longest
