"""Print what completes the words of `qkv` in a shell: commands, options, recipes, fields, their words, else files."""

from argparse import Namespace

from qkv.scripts.arguments import COMMANDS, OF_MODELS, OF_RECIPES, SHELLS, parser_of
from qkv.scripts.explain import all_entries
from qkv.scripts.prediction.options import OPTIONS
from qkv.scripts.recipes.fields.aliases import ALIASES, all_words
from qkv.scripts.recipes.fields.recipe_fields import recipe_fields
from qkv.scripts.recipes.loading import names

# Shells split words in their own way: bash at every `=`, zsh and fish nowhere.
BASH = """\
# Completion of qkv; put `eval "$(qkv completion {shell})"` into ~/.{shell}rc
_qkv() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} key= prefix=
  if [[ $word == "=" ]]; then key=$before word=
  elif [[ $before == "=" ]]; then key=${{COMP_WORDS[COMP_CWORD-2]}}
  elif [[ $word == *=* ]]; then key=${{word%%=*}} prefix=$key= word=${{word#*=}}
  fi
  local words=
  if [[ -n $key ]]; then
    case $key in
{values}
    esac
  elif (( COMP_CWORD == 1 )); then words="{commands}"
  else
    case ${{COMP_WORDS[1]}} in
{options}
    esac
  fi
  COMPREPLY=($(compgen -P "$prefix" -W "$words" -- "$word"))
  [[ ${{COMPREPLY[0]}} == *= ]] && compopt -o nospace 2>/dev/null
}}
complete -o default -F _qkv qkv
"""
ZSH = "autoload -U +X compinit bashcompinit && compinit && bashcompinit\n" + BASH
FISH = """\
# Completion of qkv; write it to ~/.config/fish/completions/qkv.fish
complete -c qkv -n __fish_use_subcommand -f -a "{commands}"
{options}
"""


def run(arguments: Namespace) -> None:
    """Print the script of a shell."""
    print({"bash": bash, "zsh": bash, "fish": fish}[arguments.shell](arguments.shell), end="")


def bash(shell: str) -> str:
    """Return the script of bash, and that of zsh, which reads bash's."""
    options = "\n".join(f'      {name}) words="{" ".join(words_of(name))}" ;;' for name in COMMANDS)
    values = "\n".join(f'      {key}) words="{" ".join(words)}" ;;' for key, words in values_of_fields().items())
    template = ZSH if shell == "zsh" else BASH
    return template.format(shell=shell, commands=" ".join(COMMANDS), options=options, values=values)


def fish(shell: str) -> str:
    """Return the script of fish."""
    pairs = [f"{key}={word}" for key, words in values_of_fields().items() for word in words]
    lines = []
    for name in COMMANDS:
        words = words_of(name) + (pairs if name in OF_RECIPES else [])
        lines.append(f'complete -c qkv -n "__fish_seen_subcommand_from {name}" -a "{" ".join(words)}"')
    return FISH.format(commands=" ".join(COMMANDS), options="\n".join(lines))


def words_of(name: str) -> list[str]:
    """Return what may be typed after a command: its options, and what its arguments name."""
    words = [option for option in parser_of(name).options if option.startswith("--")]
    if name in (*OF_RECIPES, "plan", "show"):
        words += [*names(), *(f"{key}=" for key in all_words())]
    if name in OF_MODELS:
        words += [f"{key}=" for key in OPTIONS[name]]
    if name == "explain":
        words += sorted({other for entry in all_entries() for other in entry.names} | ALIASES.keys())
    return words + list(SHELLS if name == "completion" else ())


def values_of_fields() -> dict[str, tuple[str, ...]]:
    """Return the words of each field that has some, by its names."""
    listed = {
        key: known.words or ("true", "false")
        for key, known in recipe_fields().items()
        if known.words or known.kind is bool
    }
    others = {alias: listed[keys[0]] for alias, keys in ALIASES.items() if keys[0] in listed}
    return listed | others
