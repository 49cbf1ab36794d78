"""Appendix B: which OOD pairs the texts of a model's training data name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ood_lab.clip import ClipModel
from ood_lab.common.files import read_texts
from ood_lab.lvlm.statistics.statistic_tables import Findings
from ood_lab.lvlm.statistics.synonyms import Synonyms, nearest_phrases, read_synonyms
from ood_lab.lvlm.statistics.training_coverage import semantic_overlap
from ood_lab.metrics.resampling.intervals import bayes_interval, clopper_pearson
from ood_lab.schema.results import Tables


@dataclass(frozen=True)
class Corpora:
    """The texts of the training data of models, and the pairs that are looked for in them.

    Attributes:
        texts: model → ``image`` and ``text``.
        pairs: image and category.
        synonyms: other names that count, by category.
        categories: that synonyms may be of; not all of them need have a pair.
        told: what counts as a name, for the manifest; what is suggested is added.
    """

    texts: Tables
    pairs: Sequence[tuple[str, str]]
    synonyms: Synonyms
    categories: Collection[str]
    told: dict[str, Any]

    @classmethod
    def read(
        cls,
        files: Mapping[str, str],
        pairs: Sequence[tuple[str, str]],
        synonyms: str | None,
        categories: Collection[str],
    ) -> Corpora:
        """Reads the files of all models, and the synonyms.

        Args:
            files: model → CSV.
            pairs: image and category.
            synonyms: a file of them.
            categories: see the class.

        Raises:
            UserError: a file is missing, damaged or lacks a column; see also
                :func:`~ood_lab.lvlm.statistics.synonyms.read_synonyms`.
        """
        texts = {
            model: read_texts(Path(file), ("image", "text"), f"task.corpora.{model}={file}")
            for model, file in files.items()
        }
        told: dict[str, Any] = {"named_by": "its name or its plural"}
        if synonyms is None:
            return cls(texts, pairs, {}, categories, told)
        found = read_synonyms(Path(synonyms), categories)
        told |= {
            "named_by": "its name, a synonym, or the plural of one",
            "synonyms": synonyms,
            "synonyms_sha256": sha256(Path(synonyms).read_bytes()).hexdigest(),
            "synonyms_of": {category: list(names) for category, names in found.items()},
        }
        return cls(texts, pairs, found, categories, told)

    def overlap(self, into: Findings, epsilon: float) -> None:
        """``overlap``, a row per model, and ``screening``: how many of them know few of the pairs.

        Args:
            into: where the tables go.
            epsilon: largest share that is negligible.
        """
        rows = []
        for model, texts in self.texts.items():
            by_image = {str(i): list(part) for i, part in texts.groupby("image")["text"]}
            found = semantic_overlap(self.pairs, by_image, epsilon, self.synonyms)
            rows.append({"model": model, **found._asdict()})
        table = pd.DataFrame(rows)
        below, n = int(table["below"].sum()), len(table)
        bounds = {"clopper_pearson": clopper_pearson(below, n), "bayes": bayes_interval(below, n)}
        shares = [(name, n, below, *ends) for name, ends in bounds.items()]
        screening = pd.DataFrame(shares, columns=["interval", "models", "below", "low", "high"])
        into.tables |= {"overlap": table, "screening": screening.assign(epsilon=epsilon)}
        into.notes["overlap"] = [self._note()]

    def _note(self) -> str:
        if "synonyms" not in self.told:
            return (
                "A text names a category only by its name or its plural: synonyms count once they "
                "are given (task.synonyms=FILE)."
            )
        count = sum(map(len, self.synonyms.values()))
        return (
            f"A text names a category by its name, its plural, or one of {count:,} synonyms of "
            f"{len(self.synonyms):,} categories ({Path(self.told['synonyms']).name})."
        )

    def suggest(self, into: Findings, clip: ClipModel, most: int) -> None:
        """``suggestions``: see :func:`~ood_lab.lvlm.statistics.synonyms.nearest_phrases`.

        Args:
            into: where the table goes.
            clip: whose text tower says what is near; its first template surrounds a phrase.
            most: phrases per category.
        """
        template = clip.templates[0]

        def encode(phrases: Sequence[str]) -> NDArray[np.floating]:
            return clip.encode_text([template.format(phrase) for phrase in phrases]).cpu().numpy()

        categories = sorted({category for _, category in self.pairs})
        texts = (text for table in self.texts.values() for text in table["text"])
        known = [*self.categories, *(name for each in self.synonyms.values() for name in each)]
        into.tables["suggestions"] = nearest_phrases(categories, texts, encode, most, known)
        self.told["suggestions"] = {
            "clip": clip.identity,
            "template": template,
            "per_category": most,
            "counted": False,
        }
        into.notes["suggestions"] = [
            f"Nearest to '{template.format('CATEGORY')}' for the text tower of {clip.name}. None "
            "of them counts: delete from suggestions.csv what means something else, and give the "
            "file back as task.synonyms=FILE."
        ]
