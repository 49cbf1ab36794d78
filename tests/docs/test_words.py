"""Docs, comments of the configuration, docstrings and messages use the field's terms.

`words.yaml` has what is not written, and what is written instead. A line that has to keep a word
(a quotation, a name) is listed there.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache
from itertools import chain
from pathlib import Path

import pytest
import yaml
from cli import ROOT
from written_pages import DOCS, written

_WORDS = yaml.safe_load((Path(__file__).parent / "words.yaml").read_text())
_TERMS = [(re.compile(each["not"], re.IGNORECASE), each) for each in _WORDS["terms"]]
_LONGEST = 25  # words of a sentence
_CODE = re.compile(r"``.*?``|`[^`]*`|https?://\S+|\]\([^)]*\)", re.DOTALL)
_PACKAGES = sorted(path for path in (ROOT / "ood_lab").iterdir() if path.suffix != ".pyc")

Text = tuple[Path, int, str]


def docs() -> Iterator[Text]:
    """Prose of the pages that are written by hand, by paragraph."""
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]:
        if "results" in page.relative_to(ROOT).parts[:-1]:  # outputs of commands, as they came
            continue
        text = re.sub(r"^```.*?^```", _blank, written(page), flags=re.DOTALL | re.MULTILINE)
        for number, paragraph in _paragraphs(text):
            yield page, number, paragraph


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def _paragraphs(text: str) -> Iterator[tuple[int, str]]:
    """Parts between empty lines, list items and rows of tables, with the number of their line."""
    first, lines = 1, list[str]()
    for number, line in enumerate([*text.splitlines(), ""], 1):
        begins = re.match(r"\s*(?:[-*+|#>:]|\d+\.\s|$)", line)
        if begins and lines:
            yield first, " ".join(lines)
            lines = []
        if line.strip():
            first = first if lines else number
            lines.append(line.strip())


def comments() -> Iterator[Text]:
    """Of the files of the configuration."""
    for file in (ROOT / "conf").rglob("*.yaml"):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if found := re.search(r"(?:^|\s)#+ (.*)", line):
                yield file, number, found[1]


@cache  # several tests read them
def docstrings(package: Path) -> list[Text]:
    return [
        (file, node.lineno, str(node.value))
        for file, nodes in _nodes(package)
        for node in _docstring_nodes(nodes)
    ]


@cache
def messages(package: Path) -> list[Text]:
    """Strings of at least three words that are no docstrings; a value in them is one word.

    Those of the package's tables in YAML are among them, but for data: pictures, what a tiny model
    says, and numbers of papers.
    """
    return list(_messages(package))


def _messages(package: Path) -> Iterator[Text]:
    data = package.name in ("builtin", "references")
    for file in [] if data else sorted(package.rglob("*.yaml")):
        for node in _scalars(yaml.compose(file.read_text(), yaml.CSafeLoader)):
            if len(re.findall(r"[a-z]{2,}", node.value)) >= 3:
                yield file, node.start_mark.line + 1, node.value
    for file in sorted(package.rglob("*.j2")):  # a sentence a line; pages have their own files
        for number, line in enumerate(file.read_text().splitlines(), 1):
            text = re.sub(r"{%.*?%}|{#.*?#}", "", re.sub(r"{{.*?}}", "X", line)).strip()
            if not file.name.endswith(".html.j2") and len(re.findall(r"[a-z]{2,}", text)) >= 3:
                yield file, number, text
    for file, nodes in _nodes(package):
        skipped = {id(node) for node in _docstring_nodes(nodes)}
        for node in nodes:
            if isinstance(node, ast.JoinedStr):
                skipped |= {id(each) for each in node.values}
                parts = [
                    str(each.value) if isinstance(each, ast.Constant) else "X"
                    for each in node.values
                ]
                text = "".join(parts)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                text = "" if id(node) in skipped else node.value
            else:
                continue
            if len(re.findall(r"[a-z]{2,}", text)) >= 3:
                yield file, node.lineno, text


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.MappingNode):
        for pair in node.value:
            yield from chain.from_iterable(map(_scalars, pair))
    elif node is not None:
        yield from chain.from_iterable(map(_scalars, node.value))


@lru_cache(maxsize=1)
def _nodes(package: Path) -> list[tuple[Path, list[ast.AST]]]:
    """Every node of the syntax of every file."""
    files = [package] if package.suffix == ".py" else sorted(package.rglob("*.py"))
    return [(file, list(ast.walk(ast.parse(file.read_text())))) for file in files]


def _docstring_nodes(nodes: list[ast.AST]) -> Iterator[ast.Constant]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in nodes:
        body = node.body if isinstance(node, kinds) else []
        for first, after in zip([None, *body], body, strict=False):
            # Under a class or a function, and under an attribute.
            value = after.value if isinstance(after, ast.Expr) else None
            if (
                isinstance(value, ast.Constant)
                and isinstance(value.value, str)
                and isinstance(first, ast.Assign | ast.AnnAssign | None)
            ):
                yield value


def found_in(area: str, texts: Iterable[Text]) -> list[str]:
    """Lines with a word that is not written there, with what is written instead."""
    found = []
    for file, number, text in texts:
        name = file.relative_to(ROOT).as_posix()
        plain = _CODE.sub("CODE", text)
        for pattern, term in _TERMS:
            if area not in term.get("areas", _WORDS["areas"]):
                continue
            matches = list(pattern.finditer(plain))
            if not matches or any(each in f"{name}: {text}" for each in term.get("allowed", ())):
                continue
            for match in matches:
                line = number + plain[: match.start()].count("\n")
                found.append(f"{name}:{line}: '{match[0]}': write {term['write']}")
    return found


def test_docs_use_the_terms():
    assert not (found := found_in("docs", docs())), "\n".join(found)


def test_comments_of_the_configuration_use_the_terms():
    assert not (found := found_in("conf", comments())), "\n".join(found)


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda path: path.stem)
def test_docstrings_and_messages_use_the_terms(package):
    found = found_in("docstrings", docstrings(package))
    found += found_in("messages", messages(package))
    assert not found, "\n".join(found)


def too_long(texts: Iterable[Text]) -> list[str]:
    found = []
    for file, number, text in texts:
        plain = _CODE.sub("CODE", text)
        name = f"{file.relative_to(ROOT).as_posix()}: {text}"
        if plain.startswith("|") or any(allowed in name for allowed in _WORDS["long"]):
            continue
        for sentence in re.split(r"(?<=[.!?:;])\s", plain):
            if (words := len(re.findall(r"[\w'’%/-]*\w[\w'’%/-]*", sentence))) > _LONGEST:
                found.append(f"{file.relative_to(ROOT)}:{number}: {words} words: {sentence[:60]}")
    return found


def test_sentences_of_docs_are_short():
    assert not (found := too_long(docs())), "\n".join(found)


@pytest.mark.parametrize("package", _PACKAGES, ids=lambda path: path.stem)
def test_sentences_of_messages_are_short(package):
    assert not (found := too_long(messages(package))), "\n".join(found)


def test_the_check_finds_a_word_and_a_long_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "ood_lab").mkdir()
    file = tmp_path / "ood_lab" / "module.py"
    file.write_text(
        '"""It lies in `alone`."""\n\ndef f(x):\n    """Alone."""\n'
        + '    raise ValueError(f"this is {x} on rank 0 alone, '
        + "and " * 30
        + 'more")\n'
    )
    assert len(found_in("docstrings", docstrings(file))) == 2
    assert len(found_in("messages", messages(file))) == 1
    assert len(too_long(messages(file))) == 1
