"""HallusionBench (arXiv 2310.14566): questions about images and about altered ones."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.answers.judgements import UNSURE
from ood_lab.lvlm.questions.question_files import (
    YES_NO,
    Question,
    Questions,
    existing,
    image_in,
    read_json_list,
    yes_or_no,
)

#: Entries of a record; that of ``filename`` may be missing.
_KEYS = (
    *("category", "subcategory", "set_id", "figure_id"),
    *("question_id", "visual_input", "question", "gt_answer"),
)
#: ``visual_input`` of a figure that was altered.
_ALTERED = "2"


@dataclass(frozen=True)
class HallusionFiles:
    """``HallusionBench.json``, a list of records.

    As its script counts: ``accuracy`` is over all questions (aAcc). ``figure_accuracy`` (fAcc) is
    the share of figures, ``category, subcategory, set_id, figure_id``, all of whose questions are
    right; questions of VS without a figure (``figure_id`` 0) belong to none.
    ``question_accuracy`` (qAcc) is the share of questions, ``category, subcategory, set_id,
    question_id``, that are right about every figure they concern, and without one;
    ``hard_accuracy`` the same of only altered figures (``visual_input`` 2), ``easy_accuracy`` of
    all others. A VS question without a figure is also right where the reply is uncertain: where it
    says neither yes nor no. The script asks a language model whether a reply is right or uncertain;
    here a parser reads it. Nothing is rounded.

    Args:
        path: the file.
        images: folder that the file names start from.
        blind: ask the questions without an image, too; they belong to the benchmark.

    Raises:
        UserError: a file, an image or an entry is missing.
    """

    path: str
    images: str
    blind: bool = True

    def questions(self) -> Questions:
        """See the class."""
        file, images = existing(self.path), existing(self.images)
        results = []
        for number, row in enumerate(read_json_list(file, _KEYS), 1):
            name = row.get("filename")
            if not name and not self.blind:
                continue
            category, kind, place, figure, asked, shown, text, answer = (
                str(row[key]) for key in _KEYS
            )
            whole, unseen = f"{category}/{kind}/{place}", category == "VS" and figure == "0"
            series = f"{whole}/{asked}"
            results.append(
                Question(
                    question_id=f"{whole}/{figure}/{asked}",
                    task=YES_NO,
                    image=image_in(images, str(name), file) if name else None,
                    text=text,
                    answer=yes_or_no(answer, f"{file}, record {number}"),
                    pair_id=whole,
                    meta={
                        "split": category,
                        "figure": None if unseen else f"{whole}/{figure}",
                        "series": series,
                        "easy": None if shown == _ALTERED else series,
                        "hard": series if shown == _ALTERED else None,
                        UNSURE: unseen,
                    },
                )
            )
        return results
