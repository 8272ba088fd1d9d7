"""Read texts in several languages side by side: files of lines as Moses and OPUS have them, and TMX.

Sources: Koehn et al. 2007, Moses, https://aclanthology.org/P07-2045; Tiedemann 2012, OPUS,
    https://aclanthology.org/L12-1246; TMX 1.4b, https://www.gala-global.org/tmx-14b
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from glob import escape
from itertools import zip_longest
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError, iterparse

from qkv.scripts.common.files import table
from qkv.scripts.data.examples import InvalidRecord, Record, attempt
from qkv.scripts.data.formats.encodings import open_text, whole

KNOWN = table(__file__)
LANGUAGES, CODES = {*KNOWN["languages"]}, {*KNOWN["codes"]}
LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# The number of a row in its file, and its values or the reason why it is invalid.
Row = tuple[int, Record | InvalidRecord]


def is_language(code: str) -> bool:
    """Tell whether a code is of a language, perhaps with its region or script, as pt_BR, zh-Hans and sr@latin are."""
    return re.split("[-_@]", code)[0].lower() in LANGUAGES


def has_language(path: Path) -> bool:
    """Tell whether a file's ending is a language: one that is known, or of the pair before it, as in `a.ast-en.ast`."""
    code, pair = path.suffix[1:], path.stem.rpartition(".")[2]
    return bool(code) and (is_language(code) or code in pair.split("-"))


def aligned_files(paths: Iterable[Path]) -> dict[Path, dict[str, Path]]:
    """Return the files that have the same lines in several languages, by the first of them: {first: {language: file}}.

    Their names are the same but for the languages that they end in.
    """
    found: dict[Path, dict[str, Path]] = defaultdict(dict)
    for path in sorted(filter(has_language, paths)):
        found[path.with_suffix("")][path.suffix[1:]] = path
    return {min(own.values()): own for own in found.values() if len(own) > 1}


def languages_of(path: Path) -> dict[str, Path]:
    """Return a file and those beside it that have its lines in other languages, by language."""
    beside = path.parent.glob(f"{escape(path.stem)}.*")
    return next((own for own in aligned_files(beside).values() if path in own.values()), {path.suffix[1:]: path})


def read_aligned(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read lines in several languages, one column each; ValueError where a file has fewer lines than another."""
    files = languages_of(path)
    with ExitStack() as stack:
        opened = [stack.enter_context(open_text(each, encoding)) for each in files.values()]
        for row, lines in enumerate(zip_longest(*opened), start=1):
            if ended := [each for each, line in zip(files.values(), lines, strict=True) if line is None]:
                raise ValueError(
                    f"{ended[0]} ends with line {row - 1}, and other languages go on; line n of each has to be the "
                    "same sentence, so fetch all again"
                )
            yield row, attempt(aligned, [*files], lines)


def aligned(languages: Sequence[str], lines: Sequence[str]) -> Record:
    """Return the lines of one sentence by language."""
    return dict(zip(languages, (whole(line).rstrip("\r\n") for line in lines), strict=True))


def read_tmx(path: Path, documents: str, encoding: str) -> Iterator[Row]:
    """Read the units of a translation memory, one column for each language; ValueError for broken XML."""
    try:
        for row, unit in enumerate(units(path), start=1):
            yield row, attempt(variants, unit)
    except ParseError as error:
        raise ValueError(f"{path} is not TMX: {error}; export it again") from None


def units(path: Path) -> Iterator[Element]:
    """Yield the units of a translation memory, and forget each."""
    above: list[Element] = []
    for event, element in iterparse(path, ("start", "end")):
        if event == "start":
            above.append(element)
            continue
        above.pop()
        if element.tag == "tu":
            yield element
            above[-1].clear()  # or all units would be in memory


def variants(unit: Element) -> Record:
    """Return the texts of a unit by language; InvalidRecord for a language twice, or a text without one."""
    found: Record = {}
    for variant in unit.iter("tuv"):
        language, segment = variant.get(LANG) or variant.get("lang"), variant.find("seg")
        if not language or segment is None:
            raise InvalidRecord("a tuv without xml:lang or seg")
        if language in found:
            raise InvalidRecord(f"two texts in {language}")
        found[language] = "".join(texts_of(segment)).strip()
    return found


def texts_of(element: Element) -> Iterator[str]:
    """Yield the parts of a segment that are text, without the codes of the format that it came from."""
    yield element.text or ""
    for inner in element:
        if inner.tag not in CODES:
            yield from texts_of(inner)
        yield inner.tail or ""
