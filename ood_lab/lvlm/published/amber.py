"""AMBER's discriminative questions (arXiv 2311.07397): existence, attributes, relations."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.errors import UserError
from ood_lab.lvlm.published.source import entry, existing, image_in, read_json_list, yes_or_no
from ood_lab.lvlm.questions import Question
from ood_lab.lvlm.yes_no import YES_NO

_GENERATIVE = "generative"


@dataclass(frozen=True)
class AmberFiles:
    """``annotations.json`` and ``query/query_all.json`` of AMBER's ``data`` folder.

    The positive class is no. AMBER's script rounds precision and recall to .1 percent before F1
    and adds .0001 (existence: .001) to its denominator; here nothing is rounded. All questions of
    existence have the answer no, so that their precision is 1.

    Args:
        path: the folder ``data``.
        images: folder of the images.

    Raises:
        UserError: a file, an image or an entry is missing, or a query has no annotation.
    """

    path: str
    images: str

    def questions(self) -> list[Question]:
        """See the class."""
        place, images = existing(self.path), existing(self.images)
        truths, queries = place / "annotations.json", place / "query" / "query_all.json"
        known = {
            int(entry(row, "id", truths, number)): row
            for number, row in enumerate(read_json_list(truths), 1)
        }
        found = []
        for number, row in enumerate(read_json_list(queries), 1):
            name = int(entry(row, "id", queries, number))
            if name not in known:
                raise UserError(f"{queries}, record {number}: {truths} has no id {name}")
            about = known[name]
            kind = str(entry(about, "type", truths, name))
            if kind == _GENERATIVE:
                continue
            image = str(entry(row, "image", queries, number))
            found.append(
                Question(
                    question_id=str(name),
                    task=YES_NO,
                    image=image_in(images, image, queries),
                    text=str(entry(row, "query", queries, number)),
                    answer=yes_or_no(entry(about, "truth", truths, name), truths, name),
                    parser="amber",
                    pair_id=image,
                    meta={"split": split_of(kind)},
                )
            )
        return found


def split_of(kind: str) -> str:
    """AMBER's dimension of a ``type``: existence, attribute or relation."""
    if "relation" in kind:
        return "relation"
    return "attribute" if "attribute" in kind else "existence"
