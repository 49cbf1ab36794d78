"""HallusionBench (arXiv 2310.14566): questions about images and about altered ones."""

from __future__ import annotations

from dataclasses import dataclass

from ood_lab.lvlm.published.source import entry, existing, image_in, read_json_list, yes_or_no
from ood_lab.lvlm.questions import Question
from ood_lab.lvlm.yes_no import YES_NO


@dataclass(frozen=True)
class HallusionFiles:
    """``HallusionBench.json``, a list of records.

    ``accuracy`` is over all questions (aAcc). ``figure_accuracy`` (fAcc) is the share of figures,
    ``subcategory, set_id, figure_id``, all of whose questions are right; ``question_accuracy``
    (qAcc) the share of questions, ``subcategory, set_id, question_id``, that are right about every
    figure they are asked about. Nothing is rounded.

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

    def questions(self) -> list[Question]:
        """See the class."""
        file, images = existing(self.path), existing(self.images)
        found = []
        for number, row in enumerate(read_json_list(file), 1):
            name = row.get("filename")
            if not name and not self.blind:
                continue
            keys = ("subcategory", "set_id", "figure_id", "question_id")
            kind, series, figure, question = (str(entry(row, k, file, number)) for k in keys)
            found.append(
                Question(
                    question_id=f"{row.get('category', '')}/{kind}/{series}/{figure}/{question}",
                    task=YES_NO,
                    image=image_in(images, str(name), file) if name else None,
                    text=str(entry(row, "question", file, number)),
                    answer=yes_or_no(entry(row, "gt_answer", file, number), file, number),
                    parser="default",
                    pair_id=f"{kind}/{series}",
                    meta={
                        "split": str(row.get("category", "all")),
                        "figure": f"{kind}/{series}/{figure}",
                        "series": f"{kind}/{series}/{question}",
                    },
                )
            )
        return found
