"""What betrays a machine is found, and what only looks like it is not."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qkv.scripts.publishing.hub import secrets as private
from qkv.scripts.publishing.hub.secrets import Machine, passwords, this_machine

# Put together here, so that no scanner takes this file for a leak.
MIXED = "a1B2" * 10
TOKENS = {
    "a Hugging Face token": ["hf_" + MIXED[:34], "api_org_" + MIXED[:34]],
    "a GitHub token": ["ghp_" + MIXED[:36], "github_pat_" + MIXED[:30]],
    "a GitLab token": ["glpat-" + MIXED[:20]],
    "an AWS key": ["AKIA" + "A1B2" * 4, "aws_secret_access_key = " + MIXED],
    "an API key": ["sk-" + MIXED, "sk-proj-" + MIXED, "xoxb-" + MIXED[:12], "nvapi-" + MIXED],
    "a Google key": ["AIza" + MIXED[:35]],
    "a package registry token": ["pypi-AgE" + MIXED + MIXED[:20], "npm_" + MIXED[:36]],
    "a private key": ["-----BEGIN PRIVATE KEY-----", "-----BEGIN OPENSSH PRIVATE KEY-----"],
    "a bearer token": ["Bearer " + MIXED[:20]],
    "a JSON web token": ["eyJ" + MIXED[:20] + ".eyJ" + MIXED[:20]],
    "a password in an address": ["https://me:word@example.org/x"],
}
HERE = Machine({"API_TOKEN": "not-of-any-form"}, "/srv/people/geraldine", {"user name": "geraldine"}, {"attic", "usr"})
PATHS = [
    "/home/x/model",
    "see /Users/x/model.",
    "/".join(("", "root", ".cache", "huggingface")),
    "/tmp/run-7/out",
    "'/attic/models'",
    "host:/home/x/y",
    "C:\\Users\\x",
    "D:/models/bert/x",
    "file:///anything",
    "in /srv/people/geraldine",
    "cd /srv/people/geraldine/x",
]
HARMLESS = [
    "https://huggingface.co/home/user/x",
    "http://localhost:8080/tmp/x",
    "a/b, and/or, 3/4, x /home y",
    "../home/x and ./tmp/y and ~/.cache/huggingface/hub",
    "#!/usr/bin/env python > /dev/null",
    "</s> <|/tmp|> [/INST]",
    "hf_hub_download(repo_id) of task-oriented-dialogue-systems and hf_alice",
    "the bearer of international responsibilities",
    "Q: what?\nA: this",
    "mailto:someone@example.org https://example.org/a:b@c",
    "a geraldines word",
]


@pytest.mark.parametrize(("what", "text"), [(what, text) for what, texts in TOKENS.items() for text in texts])
def test_secrets_are_known_by_their_form(what: str, text: str) -> None:
    (leak,) = HERE.secrets(f"before {text} behind")
    assert leak.what == what and leak.start == len("before ")
    assert MIXED[:8] not in leak.what, "what is said about a secret does not tell it"


@pytest.mark.parametrize("text", PATHS)
def test_paths_of_a_machine_are_traces(text: str) -> None:
    assert [leak.what for leak in HERE.traces(text)][0].startswith("the path ")


@pytest.mark.parametrize("text", HARMLESS)
def test_what_only_looks_like_it_passes(text: str) -> None:
    assert not [*HERE.secrets(text), *HERE.traces(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('api_key="correct-horse"', True),
        ("password: hunter2x", True),
        ('{"db_password": "correct-horse"}', True),
        ('api_key="your-api-key"', False),
        ("password = '<password>'", False),
        ("secret: ${SECRET}", False),
        ('access_token="xxxxxxxxxx"', False),
        ("password = getpass(prompt=1)", False),
        ("the password is required", False),
        ('"pad_token": "[PAD-123]"', False),
        ('keywords="attention-2017"', False),
    ],
)
def test_what_is_assigned_to_a_secret_name_is_a_secret_unless_it_stands_for_one(text: str, found: bool) -> None:
    assert bool([*passwords(text)]) == found


def test_values_of_secret_variables_are_secrets() -> None:
    (leak,) = HERE.secrets("x = not-of-any-form")
    assert leak.what == "the value of API_TOKEN" and leak.start == 4


@given(st.text(), st.text())
def test_a_secret_hides_in_no_text(before: str, behind: str) -> None:
    token = "hf_" + MIXED[:34]
    text = f"{before} {token} {behind}"
    assert any(text[leak.start :].startswith(token) for leak in HERE.secrets(text))


@given(st.text(alphabet="abcdefgh /.-_\n", max_size=80))
def test_names_are_whole_words(text: str) -> None:
    found = [leak for leak in HERE.traces(f"{text}geraldine{text}") if leak.what == "the user name geraldine"]
    joined = re.search(r"(?<![A-Za-z0-9])geraldine(?![A-Za-z0-9])", f"{text}geraldine{text}")
    assert bool(found) == bool(joined)


def test_this_machine_tells_its_secrets_home_and_names(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"LOGNAME": "geraldine", "HOME": "/srv/people/geraldine", "MY_KEY": "something-long"}.items():
        monkeypatch.setenv(name, value)
    for name, value in {
        "TOKENIZERS_PARALLELISM": "something",
        "SHORT_TOKEN": "1234567",
        "OTHER": "unsecretive",
        "KEYBOARD_LAYOUT": "attention",
        "MONKEY": "an-animal",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(private.socket, "gethostname", lambda: "attic7.example.org")
    monkeypatch.setattr(private, "get_token", lambda: "the-login-itself")
    found = this_machine()
    assert found.home == "/srv/people/geraldine"
    assert found.names == {
        **{"user name": "geraldine", "host name": "attic7.example.org", "short host name": "attic7"},
    }
    assert found.values["MY_KEY"] == "something-long" and "the-login-itself" in found.values.values()
    assert not {"TOKENIZERS_PARALLELISM", "SHORT_TOKEN", "OTHER", "KEYBOARD_LAYOUT", "MONKEY"} & found.values.keys()


def test_what_is_public_is_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", "geraldine")
    text = "geraldine/model of geraldine in /tmp/shown/here"
    assert len(list(this_machine().traces(text))) >= 3
    assert not list(this_machine(["geraldine", "/tmp/shown/here"]).traces(text))


@pytest.mark.parametrize("home", ["/", ""])
def test_a_user_without_a_home_may_divide(home: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", home)
    assert not list(this_machine().traces("a / b")) and list(this_machine().traces("/home/x/y"))


@pytest.mark.parametrize("name", ["root", "ubuntu", "Runner"])
def test_accounts_that_anybody_has_are_no_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOGNAME", name)
    assert name not in this_machine().names.values()


def test_a_user_without_a_name_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("uid not found")

    monkeypatch.setattr(private.getpass, "getuser", nobody)
    assert "user name" not in this_machine().names
