"""Guess the task of own data by their columns: the kinds of their values, their names, and the words that are typed."""

from collections.abc import Iterator, Mapping, Sequence

from qkv.scripts.common.words import did_you_mean
from qkv.scripts.data.columns import ANY, KNOWN, NAMES, UNCLEAR, Column, check_spelling, first, joined, longest, of_kind
from qkv.scripts.data.formats.parallel_texts import is_language
from qkv.scripts.recipes.schema import Fields

# The field of `text` that names the column of each role, and names of columns of two texts that are read together.
FIELDS, PAIRS = KNOWN["fields"], KNOWN["pairs"]
Roles = dict[str, Column]
Guess = tuple[str, dict[str, Column | None]]  # a task and its columns by role


def asked_roles(columns: Sequence[Column], text: Fields, where: str) -> Roles:
    """Return the columns that `text.column`, `text.label` and `text.target` name; ValueError for a missing one."""
    named: Roles = {column.name: column for column in columns}
    roles: Roles = {}
    for key in ("column", "label", "target", "pair", "task", "messages"):
        if name := str(text.get(key) or ""):
            parts = [name] if name in named or key != "label" else name.split(",")
            for part in parts:
                if part not in named and part.partition(".")[0] not in named:
                    raise ValueError(f"{where} has no column {part!r}; {did_you_mean(part, list(named), 'columns')}")
            roles[key] = named.get(name) or named.get(name.partition(".")[0]) or joined([named[part] for part in parts])
            if odd := [part for part in parts if len(parts) > 1 and not named[part].is_binary]:
                raise ValueError(
                    f"text.label={name}: {odd[0]!r} of {where} is no column of 0 and 1, which several labels are; name "
                    f"one column, as in text.label={odd[0]}"
                )
    return roles


def guess_task(columns: Sequence[Column], asked: Roles, where: str, task: str | None = None) -> tuple[str, Roles]:
    """Return the likeliest task and its columns by role; `asked` columns are kept. ValueError for none."""
    check_unclear(columns, asked, where, task)
    files = next((column for column in columns if column.kind in ("image", "audio")), None)
    likely = [*(tasks_of_texts(columns, asked, task) if files is None else tasks_of_files(files, columns, asked))]
    likely = [(name, roles) for name, roles in likely if all(roles.values())]
    have = ", ".join(f"{column.name} ({column.kind})" for column in columns if column.kind != "id") or "none"
    if not likely:
        raise ValueError(
            f"{where} has no columns that a task is known for; they are {have}; add texts, beside images a class (or "
            "folders of classes, in train and test if these are splits), a caption or boxes, beside recordings texts, "
            "or name columns, as in text.column=title text.label=kind"
        )
    likeliest = next((each for each in likely if task in (None, each[0])), None)
    if likeliest is None:
        named = KNOWN["typed"].get(task, "text.label=kind")
        raise ValueError(f"task={task}: {where} has no column for it, but {have}; name one, as in {named}")
    learned = {column.name for column in likeliest[1].values() if column}
    rest = [column for column in columns if column.name not in learned]
    also = [column.name for column in rest if column.kind == "number" and column.name.lower() in NAMES["number"]]
    if likeliest[0] == "causal-lm":
        kinds = ("list", "number", "class", UNCLEAR)
        also = [column.name for column in rest if column.kind in kinds or column.name.lower() in NAMES["class"]]
    if also and likeliest[0] in ("causal-lm", "regression") and task is None and not asked.keys() & {"label", "target"}:
        raise ValueError(
            f"{where}: {', '.join(also)} may be learned, too; name the column that is, as in text.label={also[0]}, "
            "several columns of 0 and 1 with commas between them, or learn the texts alone by task=causal-lm"
        )
    return likeliest[0], likeliest[1] | {role: asked[role] for role in asked if role == "task"}  # type: ignore[return-value]


def check_unclear(columns: Sequence[Column], asked: Roles, where: str, task: str | None) -> None:
    """Raise ValueError for numbers that can be read two ways, and for languages without a direction to translate."""
    if task in (None, "regression") and "target" not in asked:
        usual = [column for column in columns if column.name.lower() in NAMES["number"]]
        check_spelling([asked["label"]] if "label" in asked else usual, where)
    spoken = [
        column.name for column in columns if is_language(column.name.rpartition(".")[2]) and column.kind == "text"
    ]
    if len(spoken) > 1 and task in (None, "seq2seq") and not asked.keys() & {"target", "label"}:
        raise ValueError(
            f"{where} has the languages {', '.join(spoken)}; name the two that are translated, as in "
            f"text.column={spoken[0]} text.target={spoken[1]}"
        )


def tasks_of_texts(columns: Sequence[Column], asked: Roles, task: str | None) -> Iterator[Guess]:
    """Yield the tasks of texts, the likeliest first, each with its columns, None where one is missing."""
    dialogue = None if asked else first(columns, "dialogue", "nested", "list")
    yield "chat", {"dialogue": asked.get("messages", dialogue)}
    named = {column.name.lower(): column for column in columns}
    couples = ((named[one], named[other]) for one, other in PAIRS.items() if one in named and other in named)
    if task == "question-answering" or not asked:
        roles = ("context", "question", "answers")
        yield "question-answering", {role: asked.get(FIELDS[role]) or first(columns, role, ANY) for role in roles}
    text, second = (asked["column"], asked.get("pair")) if "column" in asked else next(couples, (None, None))
    if text is None:
        words, tags = first(columns, "words", "list"), first(columns, "tags", "list")
        yield "token-classification", {"words": words, "tags": tags if tags is not words else None}
        chain = first(columns, "chain", "text", "class") or longest(columns)
        yield "protein-folding", {"chain": chain, "coordinates": first(columns, "coordinates", "list", "nested")}
        yield "contact-prediction", {"chain": chain, "structure": of_kind(columns, "structure")}
        text = first(columns, "source", "text") or first(columns, "text") or longest(columns)
    rest = [column for column in columns if column not in (text, second)]
    texts = {"text": text, **({"second text": second} if second else {})}
    label, target = asked.get("label"), asked.get("target")
    if label:
        yield task_of_label(label, texts, task)
    elif target:
        yield ("causal-lm" if task == "causal-lm" else "seq2seq"), {"source": text, "target": target}
    elif text:
        yield from tasks_of_rest(text, rest, texts, asked, task)
    yield (task if task in ("masked-lm", "denoising") else "causal-lm"), {"text": text}


def task_of_label(label: Column, texts: Mapping[str, Column | None], task: str | None) -> Guess:
    """Return the task of texts and a column that is named as their label."""
    both = label.kind == "list" and texts["text"] and texts["text"].kind == "list"
    if task == "token-classification" or (task is None and both):
        return "token-classification", {"words": texts["text"], "tags": label}
    kind = task or {"number": "regression", "list": "multi-label"}.get(label.kind, "")
    if role := {"regression": "number", "multi-label": "classes"}.get(kind):
        return kind, {**texts, role: label}
    return "text-classification", {**texts, "class": label}


def tasks_of_rest(
    text: Column, rest: Sequence[Column], texts: Mapping[str, Column | None], asked: Roles, task: str | None
) -> Iterator[Guess]:
    """Yield the tasks that other columns of a text may be for.

    A column that is called a target beside one that is called its source is a text, however often its values repeat.
    """
    target = None if "column" in asked else first(rest, "target")
    both_named = text.name.lower() in NAMES["source"] and target is not None and target.name.lower() != "target"
    writes = "causal-lm" if task == "causal-lm" else "seq2seq"
    yield writes, {"source": text, "target": target if both_named else None}
    yield "regression", {**texts, "number": first(rest, "number", "number")}
    called, flags = first(rest, "class", "class"), [column for column in rest if column.is_binary]
    is_usual = called is not None and called.name.lower() in NAMES["class"]
    several = first(rest, "classes", "list") or (joined(flags) if len(flags) > 1 and not is_usual else None)
    yield "multi-label", {**texts, "classes": several}
    yield "text-classification", {**texts, "class": called}
    yield "seq2seq", {"source": text, "target": target if target and target.kind in ("text", "date") else None}
    yield "text-classification", {**texts, "class": first(rest, "class")}
    last = None if "column" in asked else (target if task else None) or longest(rest)
    yield "seq2seq", {"source": text, "target": last}


def tasks_of_files(files: Column, columns: Sequence[Column], asked: Roles) -> Iterator[Guess]:
    """Yield the tasks of images or recordings by the columns beside them, the likeliest first."""
    rest = [column for column in columns if column is not files and not column.is_json]
    text = asked.get("column") or first(rest, "text") or longest(rest)
    if files.kind == "audio":
        yield "speech-recognition", {"audio": files, "text": text}
        return
    yield "object-detection", {"image": files, "boxes": of_kind(rest, "boxes")}
    yield "image-classification", {"image": files, "class": asked.get("label") or first(rest, "class")}
    yield "captions", {"image": files, "caption": text}
