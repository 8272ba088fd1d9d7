"""Retry what may succeed later on the Hub, after the time that it asks for, and explain the other failures."""

import json
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import TypeVar

from httpx2 import HTTPError
from huggingface_hub import get_token
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError, OfflineModeIsEnabled
from huggingface_hub.utils._http import parse_ratelimit_headers

from qkv.scripts.common.resources import table

logger = logging.getLogger(__name__)
Result = TypeVar("Result")
# Somebody has pushed, or our own commit is in and its reply was lost: only another look tells.
STALE = 412
TEMPORARY = (408, STALE, 429)
SENTENCES = table(__file__)


class PublishError(RuntimeError):
    """The Hub did not take a model; one sentence says why, and how to mend it."""


@dataclass(frozen=True)
class Patience:
    """The number of attempts, and the seconds to wait first; every further wait is twice as long."""

    attempts: int = 5
    first_wait: float = 1.0
    longest_wait: float = 300.0

    def wait(self, attempt: int, error: BaseException) -> float:
        """Return the seconds to wait after a failed attempt, counted from 1: what the Hub asks for, if it does."""
        asked = asked_wait(error)
        return min(self.longest_wait, self.first_wait * 2 ** (attempt - 1) if asked is None else asked)


def persistently(action: Callable[[], Result], repo: str, patience: Patience) -> Result:
    """Call an action until it succeeds or a failure is permanent; then PublishError.

    The action has to look at the Hub afresh each time: a request that failed may have been carried out.
    """
    for attempt in range(1, patience.attempts + 1):
        try:
            return action()
        except Exception as error:
            if not temporary(error):
                if (sentence := explained(error, repo)) is None:
                    raise
                raise sentence from error
            if attempt == patience.attempts:
                raise given_up(error, repo, attempt) from error
            seconds = patience.wait(attempt, error)
            again = f"trying again in {seconds:.0f} s, attempt {attempt + 1} of {patience.attempts}"
            logger.warning("%s: %s; %s", repo, brief(error), again)
            time.sleep(seconds)
    raise ValueError(f"attempts={patience.attempts} must be at least 1")


def temporary(error: BaseException) -> bool:
    """Return whether the same may succeed later.

    A library that loses its connection in one of several threads reports whatever the others stumble over, down to an
    AttributeError of its closed client; so what is neither an answer nor a mistake of ours is worth another look.
    """
    if (status := status_of(error)) is not None:
        return status in TEMPORARY or status >= 500
    if isinstance(error, json.JSONDecodeError | HTTPError):  # a page of HTML from a gateway
        return True
    local = (FileNotFoundError, PermissionError, OfflineModeIsEnabled, LocalTokenNotFoundError, PublishError)
    return isinstance(error, OSError | RuntimeError | AttributeError) and not isinstance(error, local)


def answer_of(error: BaseException | None) -> HfHubHTTPError | None:
    """Return the Hub's answer that an error is, or was raised from."""
    while error is not None and not isinstance(error, HfHubHTTPError):
        error = error.__cause__
    return error


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status of an error or of its cause."""
    answer = answer_of(error)
    return answer.response.status_code if answer else None


def asked_wait(error: BaseException) -> float | None:
    """Return the seconds that the Hub asks to wait: `Retry-After`, a number or a date, or its rate limit."""
    answer = answer_of(error)
    if answer is None:
        return None
    after = answer.response.headers.get("Retry-After", "")
    if after.isdecimal():
        return float(after)
    if after:
        try:
            return max(0.0, (parsedate_to_datetime(after) - datetime.now(timezone.utc)).total_seconds())
        except (TypeError, ValueError):
            return None
    limit = parse_ratelimit_headers(answer.response.headers)
    return float(limit.reset_in_seconds) if limit and not limit.remaining else None


def explained(error: Exception, repo: str) -> PublishError | None:
    """Return the error as one sentence with a remedy; None for one that explains itself."""
    status, names = status_of(error), {"repo": repo, "owner": repo.partition("/")[0]}
    if isinstance(error, OfflineModeIsEnabled):
        return PublishError(SENTENCES["offline"].format(**names))
    if isinstance(error, LocalTokenNotFoundError) or (status == 401 and not get_token()):
        return PublishError(SENTENCES["nobody"].format(**names))
    if status is None or type(error) is ValueError:  # such as what the client says about the head of a README
        return None
    sentence = SENTENCES.get(status, SENTENCES["refused"]).format(**names)
    return PublishError(f"{sentence} ({brief(error)})")


def given_up(error: Exception, repo: str, attempts: int) -> PublishError:
    """Return the error after the last attempt."""
    if status_of(error) == STALE:
        return PublishError(SENTENCES[STALE].format(repo=repo))
    return PublishError(SENTENCES["given up"].format(repo=repo, attempts=attempts, end=brief(error)))


def brief(error: BaseException) -> str:
    """Return an error in one short line, the Hub's own where it sent one."""
    if answer := answer_of(error):
        said = f"HTTP {answer.response.status_code}: {answer.server_message or answer.response.reason_phrase}"
    else:
        while error.__cause__ is not None:
            error = error.__cause__
        said = f"{type(error).__name__}: {error}"
    return " ".join(said.split())[:200]
