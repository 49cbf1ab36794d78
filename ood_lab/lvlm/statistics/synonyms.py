"""Other names of a category: those that the user gives, and what a CLIP suggests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from numpy.typing import NDArray
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from ood_lab.common.errors import UserError
from ood_lab.common.files import YAML_LOADER, read_texts
from ood_lab.common.hints import suggestion
from ood_lab.lvlm.statistics.training_coverage import naming

#: Category → its other names.
Synonyms = Mapping[str, Sequence[str]]
_COLUMNS = ("category", "synonym")
_WORD = re.compile(r"[^\W\d_]+(?:[-'’][^\W\d_]+)*")
#: Words of a phrase at most, and phrases that a CLIP is asked about: those of the most texts.
_LONGEST, _MOST = 3, 5000


def read_synonyms(path: Path, categories: Iterable[str]) -> dict[str, list[str]]:
    """Other names of the categories.

    Args:
        path: a CSV with the columns ``category`` and ``synonym`` (others are not read), or YAML: a
            list of the same, or ``category: [synonym, ...]``.
        categories: those that there are.

    Raises:
        UserError: the file is missing, of another layout, names a category that there is not, or
            has an empty synonym.
    """
    known = set(categories)
    found: dict[str, list[str]] = {}
    for place, (category, synonym) in enumerate(_rows(path), 1):
        if category not in known:
            near = suggestion(category, sorted(known))
            raise UserError(f"task.synonyms={path} names the category '{category}': {near}")
        if not synonym.strip():
            raise UserError(f"task.synonyms={path}: synonym {place} (of '{category}') is empty")
        if synonym.strip() not in found.setdefault(category, []):
            found[category].append(synonym.strip())
    return found


def _rows(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise UserError(f"task.synonyms={path}: there is no such file")
    if path.suffix == ".csv":
        table = read_texts(path, _COLUMNS, f"task.synonyms={path}")
        return list(zip(table["category"], table["synonym"], strict=True))
    if path.suffix not in (".yaml", ".yml"):
        raise UserError(f"task.synonyms={path}: give a file that ends in .csv or .yaml")
    layout = UserError(
        f"task.synonyms={path} is neither 'category: [synonym, ...]' nor a list of category and "
        "synonym"
    )
    try:
        content: Any = yaml.load(path.read_text(encoding="utf-8"), YAML_LOADER)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise layout from error
    if isinstance(content, dict) and all(isinstance(each, list) for each in content.values()):
        return [(str(key), str(each or "")) for key, found in content.items() for each in found]
    if isinstance(content, list) and all(
        isinstance(row, dict) and set(_COLUMNS) <= set(row) for row in content
    ):
        return [(str(row["category"]), str(row["synonym"] or "")) for row in content]
    raise layout


def phrases(texts: Iterable[str]) -> Counter[str]:
    """Phrases of one to three words, in lower case, and in how many texts each occurs.

    No phrase reaches over a comma, a full stop or the like, none begins or ends with a word that
    has no meaning by itself (*the*, *of*, scikit-learn's English list), and none has a digit.
    """
    found: Counter[str] = Counter()
    for text in texts:
        inside: set[str] = set()
        for part in re.split(r"[^\w\s'’-]+", text.lower()):
            words = part.split()
            for start in range(len(words)):
                for end in range(start + 1, min(start + _LONGEST, len(words)) + 1):
                    run = words[start:end]
                    edges = {run[0], run[-1]}
                    if all(map(_WORD.fullmatch, run)) and not edges & ENGLISH_STOP_WORDS:
                        inside.add(" ".join(run))
        found.update(inside)
    return found


def nearest_phrases(
    categories: Sequence[str],
    texts: Iterable[str],
    encode: Callable[[Sequence[str]], NDArray[np.floating]],
    most: int,
    known: Iterable[str] = (),
) -> pd.DataFrame:
    """For each category the phrases of a corpus that a text tower finds nearest: suggestions.

    What names a category already, its plural included, is cut out of the texts first: it counts
    already, or it means another category. A text tower knows what goes together
    as well as what means the same (*fork* is near to *plate*), so that a person has to choose.

    Args:
        categories: their names.
        texts: of the corpus.
        encode: normalised features of N texts, ``[N, D]``.
        most: phrases per category.
        known: names that are known in addition to these categories: of other ones, and synonyms.

    Returns:
        ``category, synonym, cosine, texts`` (how many have the phrase); nearest first.
    """
    named = naming(tuple(sorted({*categories, *known})))
    counts = phrases(named.sub(",", text) for text in texts)
    kept = [phrase for phrase, _ in counts.most_common(_MOST)]
    if not kept:
        return pd.DataFrame(columns=["category", "synonym", "cosine", "texts"])
    cosines = encode(list(categories)) @ encode(kept).T
    rows = [
        (category, kept[place], float(row[place]), counts[kept[place]])
        for category, row in zip(categories, cosines, strict=True)
        for place in np.argsort(-row, kind="stable")[:most]
    ]
    return pd.DataFrame(rows, columns=["category", "synonym", "cosine", "texts"])
