"""`qkv completion`: the shell itself completes commands, recipes, fields and words."""

import shutil
import subprocess

import pytest

from qkv.scripts.arguments import COMMANDS, SHELLS
from qkv.scripts.cli import main
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.loading import names

TRY = """
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _qkv; printf '%s\\n' "${{COMPREPLY[@]}}"
"""


@pytest.fixture
def script(capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["completion", "bash"]) == 0
    return capsys.readouterr().out


def complete(script: str, words: str) -> list[str]:
    shell = shutil.which("bash")
    assert shell
    done = subprocess.run([shell, "-c", script + TRY.format(words=words)], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_bash_completes_commands_recipes_fields_and_words(script: str) -> None:
    assert complete(script, "qkv tra") == ["train"] and set(complete(script, "qkv ''")) == set(COMMANDS)
    assert set(complete(script, "qkv train ''")) >= {*names(), *(f"{key}=" for key in recipe_fields())}
    assert complete(script, "qkv train digits schedule = no") == ["noam"]
    assert complete(script, "qkv train digits schedule=no") == ["schedule=noam"]
    assert set(complete(script, "qkv train digits streaming =")) == {"true", "false"}
    assert "--trust-remote-code" in complete(script, "qkv verify --")
    assert complete(script, "qkv explain masked-") == ["masked-lm"] and complete(script, "qkv explain kerp") == [
        "kerple"
    ]
    assert complete(script, "qkv publish runs") == []  # what is a path is left to the shell


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_know_the_same_words(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    assert all(word in printed for word in (*COMMANDS, *names(), *recipe_fields(), "noam"))


def test_another_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "tcsh"]) == 1
    printed = capsys.readouterr().err
    assert "tcsh" in printed and all(shell in printed for shell in SHELLS)
