"""The reference of the configuration, in Markdown: a page for each group, made of its comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

CONF = Path(__file__).parents[2] / "conf"
#: Keys of Hydra and of ours that nobody sets; a class is named where its object stands.
_INTERNAL = re.compile(r"_\w+_$")
_HEAD = '\n<div class="options" markdown>\n' + "\n| option | default | |\n|---|---|---|\n"


@dataclass
class Option:
    """A key that can be set on the command line."""

    name: str
    line: int
    default: str
    comments: list[str] = field(default_factory=list)


def pages() -> dict[str, str]:
    """Markdown of every page, by the name of its group; ``index`` has what belongs to none."""
    tops = sorted(folder.name for folder in CONF.iterdir() if folder.is_dir())
    found = {top: _group(top) for top in tops}
    lines = [f"- [`{top}`]({top}.md): {', '.join(_choices(top))}" for top in tops]
    own = "".join(_section(CONF / f"{name}.yaml", name, "") for name in ("base", "train", "eval"))
    found["index"] = (
        "# Configuration\n\nEvery option with its default and its comment, from the files of "
        "`conf/`. A group is a folder. `group=choice` takes one of its files, `key=value` sets an "
        "option; `python eval.py ... --cfg job` prints the whole configuration.\n\n## Groups\n\n"
        + "\n".join(lines)
        + "\n"
        + own
    )
    return found


def _files(top: str) -> list[Path]:
    """Of a group and the groups below it; not the text of ``--help``."""
    files = sorted((CONF / top).rglob("*.yaml"), key=lambda file: (len(file.parts), file))
    return [file for file in files if file.parent != CONF / "hydra" / "help"]


def choice_table(group: str) -> str:
    """The choices of a group with the first sentence of their comments, linked to their options."""
    rows = []
    for file in sorted((CONF / group).glob("*.yaml")):
        said = first_sentence(file)
        rows.append(f"| [`{file.stem}`](../configuration/{anchor(group, file)}) | {_words(said)} |")
    return "| choice | |\n|---|---|\n" + "\n".join(rows)


def anchor(group: str, file: Path) -> str:
    """Where a choice of a group is, from the folder of the configuration."""
    return f"{group.split('/')[0]}.md#" + re.sub(r"\W+", "-", f"{group}={file.stem}")


def first_sentence(file: Path) -> str:
    """Of the comment at the top of a file, without what only Hydra or a program reads."""
    lines = re.findall(r"^#(.*)", file.read_text(encoding="utf-8"), re.M)
    head = [line.strip() for line in lines if not re.match(r" (@|   )", line)]
    return re.split(r"(?<=[.:])\s", " ".join(head))[0].rstrip(":.") + "."


def _choices(top: str) -> list[str]:
    paths = [file.relative_to(CONF / top).with_suffix("") for file in _files(top)]
    return [f"`{path.as_posix()}`" for path in paths]


def _group(top: str) -> str:
    chosen = yaml.load((CONF / "base.yaml").read_text(encoding="utf-8"), yaml.CSafeLoader)[
        "defaults"
    ]
    default = next((entry[top] for entry in chosen if isinstance(entry, dict) and top in entry), "")
    text = f"# `{top}`\n\n"
    text += f"By default `{top}={default or 'null'}`.\n" if default != "" else ""
    for file in _files(top):
        group = file.parent.relative_to(CONF).as_posix()
        text += _section(file, f"{group}={file.stem}", group.replace("/", "."))
    return text


def _section(file: Path, title: str, package: str) -> str:
    """Heading, comment at the top, what it builds on, and the table of its options."""
    source = file.read_text(encoding="utf-8")
    if re.match(r"# @package _global_", source):
        package = ""
    head, options, target, bases = read(source, package)
    anchor = re.sub(r"\W+", "-", title)
    text = f'\n<a id="{anchor}"></a>\n\n## `{title}`\n\n' + _prose(head)
    text += f"\nBuilds `{target}`.\n" if target else ""
    text += f"\nBegins with {', '.join(f'`{base}`' for base in bases)}.\n" if bases else ""
    rows = [
        f"| `{o.name}` | {_code(o.default)} | {_words(' '.join(o.comments))} |" for o in options
    ]
    return text + (_HEAD + "\n".join(rows) + "\n\n</div>\n" if rows else "")


def read(source: str, package: str) -> tuple[list[str], list[Option], str, list[str]]:
    """Of a file: comment at the top, options, class, and the files it begins with."""
    root = yaml.compose(source, Loader=yaml.CSafeLoader)
    if not isinstance(root, MappingNode) or not root.value:
        return [line[1:] for line in source.splitlines() if line.startswith("#")], [], "", []
    every = list(_options(root, package, source))
    head = _attach(source, every, root.start_mark.line)
    target = next((o.default for o in every if o.name in ("_target_", f"{package}._target_")), "")
    shown = [o for o in every if not _INTERNAL.search(o.name) and (o.comments or o.default)]
    entries = yaml.load(source, yaml.CSafeLoader).get("defaults", [])
    bases = [entry for entry in entries if isinstance(entry, str) and entry != "_self_"]
    return head, shown, target, bases


def _options(node: MappingNode, prefix: str, source: str) -> Iterator[Option]:
    for key, value in node.value:
        name = f"{prefix}.{key.value}" if prefix else str(key.value)
        if key.value == "defaults" and isinstance(value, SequenceNode):
            for entry in value.value:
                if isinstance(entry, MappingNode):
                    yield _choice(entry, source)
        elif isinstance(value, MappingNode) and not value.flow_style:
            target = {k.value: v.value for k, v in value.value}.get("_target_", "")
            yield Option(name, key.start_mark.line, target)
            yield from _options(value, name, source)
        else:
            yield Option(name, key.start_mark.line, _shown(value, source))


def _choice(entry: MappingNode, source: str) -> Option:
    """What a defaults list takes of another group: ``override /clip: tiny``."""
    ((key, value),) = entry.value
    group = re.sub(r"^(override|optional) ", "", key.value).strip("/").split("@")[0]
    return Option(group, key.start_mark.line, _shown(value, source))


def _shown(value: Node, source: str) -> str:
    if isinstance(value, SequenceNode) and not value.flow_style:
        content = yaml.load(
            source[_line_start(value, source) : value.end_mark.index], yaml.CSafeLoader
        )
        return " ".join(yaml.safe_dump(content, default_flow_style=True, width=10**6).split())
    return " ".join(source[value.start_mark.index : value.end_mark.index].split())


def _line_start(value: Node, source: str) -> int:
    """With the indentation of its first line, as the others have theirs."""
    return source.rfind("\n", 0, value.start_mark.index) + 1


def _attach(source: str, options: list[Option], first: int) -> list[str]:
    """Hands every comment to its option; returns those before the first key.

    A comment belongs to the key of its line, or to the last one before it. One on lines of its own
    belongs to the key below, unless it stands under another comment in the same column.
    """
    ends: dict[int, int] = {}
    inside: set[int] = set()
    for token in yaml.scan(source, Loader=yaml.CSafeLoader):
        start, end = token.start_mark, token.end_mark
        if isinstance(token, yaml.ScalarToken) and token.style in ("|", ">"):
            inside |= set(range(start.line + 1, end.line))
        elif end.index > start.index:
            ends[end.line] = max(ends.get(end.line, 0), end.column)
    at = {option.line: option for option in options}
    head: list[str] = []
    waiting: list[str] = []
    last, column = None, -1
    for number, line in enumerate(source.splitlines()):
        if number in inside:
            continue
        found = re.search(r"#(.*)$", line[ends.get(number, 0) :])
        place = ends.get(number, 0) + found.start() if found else -1
        if number < first:
            head += [found[1]] if found and not found[1].startswith(" @") else []
        elif number in ends:
            here = at.get(number)
            last = here or last
            if last is not None:
                last.comments += waiting + ([found[1].strip()] if found else [])
            waiting, column = [], place
        elif found and place == column and last is not None:
            last.comments.append(found[1].strip())
        elif found:
            waiting.append(found[1].strip())
    if waiting and last is not None:
        last.comments += waiting
    return head


def _prose(lines: list[str]) -> str:
    """Paragraphs; what is indented is a command."""
    text, code = "", False
    for line in lines:
        indented = line.startswith("   ")
        if indented != code:
            text += "```\n" if code else "\n```bash\n"
            code = indented
        text += (line[3:] if indented else _words(line.strip())) + "\n"
    return text + ("```\n" if code else "")


def _code(value: str) -> str:
    return f"`` {value} ``" if "`" in value else f"`{value}`" if value else ""


def _words(text: str) -> str:
    """Plain text as Markdown; names of pages become links."""
    parts = re.split(r"(`[^`]*`)", text)
    for i in range(0, len(parts), 2):
        words = parts[i].replace("&", "&amp;").replace("<", "&lt;")
        words = re.sub(r"([\\*_\[\]|])", r"\\\1", words)
        parts[i] = re.sub(r"docs/([\w/-]+)\.md", r"[\1.md](../\1.md)", words)
    return "".join(parts)
