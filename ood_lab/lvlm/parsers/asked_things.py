"""What a question asks about: its object, its options, and whether it is negated."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from string import ascii_uppercase
from typing import NamedTuple

from ood_lab.common.files import packaged_table
from ood_lab.lvlm.parsers.base import english
from ood_lab.lvlm.parsers.chinese_japanese import MEASURES

_PICTURE = r"(?:image|picture|photo|photograph|scene|figure|frame)"
_ARTICLE = r"(?:(?:a|an|any|the|some|at least one)\s+)?"
_END = (
    r"(?=\s+(?:in|on|at|within|inside|from|visible|present|shown|depicted|anywhere|here|there|near|"
    r"beside|next|under|that|which|are|is|do|does|can|appear)\b|\s*[?.,(:\n]|\s*$)"
)
_THING = rf"{_ARTICLE}(?P<thing>[\w][\w' /-]*?){_END}"
#: Ways to ask whether a thing is there, or how many there are.
_WAYS = tuple(
    re.compile(way, re.IGNORECASE)
    for way in (
        r"\bhow many\s+" + _THING,
        r"\b(?:number|count) of\s+" + _THING,
        r"\b(?:is|are|was|were)(?P<negated>n't|\s+not)?\s+there\s+(?P<no>no\s+)?" + _THING,
        r"\b(?:does|do|did|can|could)(?P<negated>n't|\s+not)?\s+(?:(?:the|this|that)\s+)?"
        rf"(?:{_PICTURE}|it|you|we)\s+(?P<no>not\s+)?"
        r"(?:contain|show|include|have|depict|display|feature|see|spot|find|notice)\s+" + _THING,
        rf"\b(?:is|are)(?P<negated>n't|\s+not)?\s+{_ARTICLE}(?P<thing>[\w][\w' /-]*?)\s+"
        rf"(?P<no>not\s+)?(?:(?:visible|present|shown|depicted)\b|in\s+(?:the"
        rf"|this)\s+{_PICTURE}\s*(?:[?.,(:]|$))",
    )
)
_MORE = re.compile(
    rf"number of\s+(?P<a>.+?)(?:\s+in\s+(?:the|this)\s+{_PICTURE})?"
    rf"\s+(?:greater|larger|more|higher)\s+than\s+(?:the number of\s+|that of\s+)?(?P<b>.+?){_END}|"
    rf"are there more\s+(?P<c>.+?)\s+than\s+(?P<d>.+?){_END}",
    re.IGNORECASE,
)
_OPTION = re.compile(r"(?:^|[\s(])([A-H])[.):]\s*(.+?)(?=\s+\(?[B-H][.):]\s|\s*[\n;]|\s*$)")
#: Options that have a line each, which then ends at the end of the line.
_LINE_OPTION = re.compile(r"^([A-Z])\. (.+)$", re.MULTILINE)
#: A Chinese question for a thing.
_IN_CHARACTERS = re.compile(
    rf"(?:有没有|是否有|有多少|有几|多少|几|有)[一几]?[{MEASURES}]?([\u4e00-\u9fff]+?)[吗嗎？?。]"
)
_NAMES = packaged_table(__package__, "object_names.yaml")
_NUMBER_FIRST = re.compile(r"(?:one|two|three|four|five|\d+|more)\b")


class Asked(NamedTuple):
    """What a question asks about.

    Attributes:
        thing: pattern of the object's name, singular and plural; None where it asks for none.
        negated: whether the question is for its absence.
        more: patterns of the two things whose numbers are compared.
        options: text of each option by its letter.
        names: Chinese and Japanese names of the object, where they are known.
    """

    thing: re.Pattern[str] | None
    negated: bool
    more: tuple[str, str] | None
    options: Mapping[str, str]
    names: tuple[str, ...] = ()


@lru_cache(4096)
def asked_by(question: str) -> Asked:
    """What a question asks about.

    Raises:
        UserError: inflect is missing.
    """
    options = dict(_LINE_OPTION.findall(question))
    if len(options) < 2:
        options = dict(_OPTION.findall(question))
    if list(options) != [*ascii_uppercase][: len(options)]:
        options = {}
    if results := _MORE.search(question):
        names = [name for name in results.groups() if name]
        return Asked(None, False, (_pattern(names[0]), _pattern(names[1])), options)
    for way in _WAYS:
        results = way.search(question)
        if results is None:
            continue
        name, groups = results["thing"].strip().lower(), results.groupdict()
        if _NUMBER_FIRST.match(name) or re.search(r"\b(?:and|or)\b", name):
            break
        negated = bool(groups.get("negated")) != bool(groups.get("no"))
        return Asked(re.compile(_pattern(name)), negated, None, options, _characters(name))
    if results := _IN_CHARACTERS.search(question):
        return Asked(None, False, None, options, (results[1],))
    return Asked(None, False, None, options)


def _characters(name: str) -> tuple[str, ...]:
    """Chinese and Japanese names of an English one."""
    singular = str(english().singular_noun(name) or name)
    return tuple(str(_NAMES.get(singular) or _NAMES.get(name) or "").split())


def _pattern(name: str) -> str:
    """Singular and plural of a name, in lower case, however its words are joined."""
    name = re.sub(r"^(?:a|an|the)\s+", "", " ".join(name.lower().replace("_", " ").split()))
    forms = {name, str(english().plural_noun(name) or name)}
    forms.add(str(english().singular_noun(name) or name))
    longer_names = [longer for longer in _NAMES if longer.endswith(f" {name}")]
    other = "".join(rf"(?<!\b{re.escape(item.removesuffix(name))})" for item in longer_names)
    ways = (r"[\s_-]+".join(map(re.escape, form.split())) for form in sorted(forms))
    return rf"{other}\b(?:{'|'.join(sorted(ways, key=len, reverse=True))})\b(?!['-]\w)"
