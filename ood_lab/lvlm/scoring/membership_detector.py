"""A vision-language model as a detector: is each image one of the ID classes?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ood_lab.common.arguments import Fields, Settings
from ood_lab.common.english import counted, listed
from ood_lab.common.errors import UserError
from ood_lab.common.files import replaced
from ood_lab.data.dataset import ImageDataset, Splits
from ood_lab.data.sources.image_files import FileDataset
from ood_lab.lvlm.answers.answer_files import Answers
from ood_lab.lvlm.answers.judgements import FAILED, PARSED, judge
from ood_lab.lvlm.parsers import NO, YES
from ood_lab.lvlm.questions.question_files import YES_NO, Question, Questions
from ood_lab.lvlm.scoring.scored_results import columns_of
from ood_lab.metrics import wilson_interval
from ood_lab.metrics.resampling.intervals import Estimate
from ood_lab.schema.results import Kind

#: What a vision-language model says no to: share of the images of ID test and of each OOD set.
KIND = Kind("vlm_answers", "image", ("dataset", "n_unparsed"))
#: What it is called beside what detectors look at.
FAMILY = "vision-language model"


@dataclass(frozen=True)
class MembershipScores:
    """What a vision-language model says of the images.

    Attributes:
        name: of the model, and of its column in the scores table.
        table: ``dataset, index, score, said``; the score is P(no), or 1, 0 and, where nothing can
            be read, 1/2. ``said`` is yes, no or missing.
        hard: no probabilities are known, so the AUROC is the mean of the rates of right answers
            on both sides (balanced accuracy), and no threshold can be chosen.
        made_with: the model and its settings.
        seconds: that the asking took.
    """

    name: str
    table: pd.DataFrame
    hard: bool
    made_with: Settings
    seconds: float

    def added_to(self, scores: pd.DataFrame) -> pd.DataFrame:
        """The scores table with a column of this model."""
        column = self.table.rename(columns={"score": self.name}).drop(columns="said")
        return scores.merge(column, on=["dataset", "index"], how="left", validate="one_to_one")

    @property
    def said(self) -> pd.DataFrame:
        """``dataset, n, rejected, undecided``: how many images of each set it says no to."""
        said = self.table["said"]
        item = self.table.assign(n=1, rejected=said == NO, undecided=said.isna())
        counts = item.groupby("dataset", sort=False)[["n", "rejected", "undecided"]]
        return counts.sum().reset_index()

    def said_of(self, ood_sets: Sequence[str]) -> pd.DataFrame:
        """The same of only ID test and these sets."""
        return self.said[self.said["dataset"].isin(["test", *ood_sets])]

    def describe(self) -> Fields:
        """What the manifest says in addition to the detectors."""
        facts = {"input_type": FAMILY, "probabilities": not self.hard, **self.made_with}
        return facts | {"fit_seconds": 0.0, "score_seconds": self.seconds}

    @property
    def warnings(self) -> list[str]:
        """What to know before its numbers are believed."""
        results = []
        if undecided := int(self.said["undecided"].sum()):
            results.append(
                f"{self.name}: {counted(undecided, 'reply')} of {len(self.table):,} say "
                "neither yes nor no"
                + (", and count as half of each" if self.hard else "; P(yes) is used all the same")
            )
        if self.hard:
            results.append(
                f"{self.name} says yes or no without a probability: its AUROC is its balanced "
                "accuracy, and without a threshold it has no FPR95 and no AUPR"
            )
        return results

    def without_thresholds(self, results: pd.DataFrame) -> pd.DataFrame:
        """Results without what a mere yes or no does not give."""
        if not self.hard:
            return results
        meant = results["metric"].str.endswith("auroc")
        return results[(results["detector"] != self.name) | meant].reset_index(drop=True)


def check_wording(wording: str, classes: Sequence[str]) -> None:
    """Raises a UserError where the question cannot be put in words."""
    if "{classes}" not in wording:
        raise UserError(
            f"task.question='{wording}' has no {{classes}}: put it where the ID class names go"
        )
    if not classes:
        raise UserError(
            "a vision-language model needs the names of the ID classes, and these images "
            "have no labels: remove lvlm=..."
        )


def questions_about(
    sets: Splits, of_id: Sequence[str], classes: Sequence[str], wording: str, folder: Path
) -> Questions:
    """A question about every image.

    Args:
        sets: by name.
        of_id: names of those that belong to ID.
        classes: names of the ID classes.
        wording: with ``{classes}``.
        folder: in which images without a file of their own are written.
    """
    names = [name.replace("_", " ") for name in classes]
    text = wording.replace("{classes}", listed(names, "or"))
    return [
        Question(
            f"{name}/{index}",
            YES_NO,
            str(_file_of(data, index, folder)),
            text,
            YES if name in of_id else NO,
            meta={"dataset": name, "index": index},
        )
        for name, data in sets.items()
        for index in range(len(data))
    ]


def _file_of(data: ImageDataset, index: int, folder: Path) -> Path:
    """The file of an image: its own, or one that is written here."""
    if type(data).load_image is FileDataset.load_image:
        return Path(str(data.table["path"].iat[index])).absolute()
    file = folder / data.name / f"{index:06d}.png"
    if not file.exists():
        image = data.load_image(index)
        with replaced(file) as place:
            image.save(place, "PNG")
    return file.absolute()


def asked_of(
    questions: Questions, answers: Answers, name: str, made_with: Settings, seconds: float
) -> MembershipScores:
    """The answers as scores; those without a reply count as undecided."""
    judgements = judge(questions, answers)
    said = judgements["parsed"].where(judgements["status"] == PARSED)
    chance = pd.to_numeric(judgements["p_yes"])
    replied = judgements["status"] != FAILED
    hard = bool(chance[replied].isna().any()) or not replied.any()
    sure = 1 - said.map({YES: 1.0, NO: 0.0})
    score = (sure if hard else 1 - chance).astype("float64").fillna(0.5)
    table = judgements[["dataset", "index"]].assign(score=score, said=said)
    return MembershipScores(name, table, hard, made_with, seconds)


def said_results(asked: MembershipScores, seed: int) -> pd.DataFrame:
    """Share of the images of each set that the model says no to, with Wilson's intervals."""
    rows = []
    for row in asked.said.to_dict("records"):
        n, share = int(row["n"]), row["rejected"] / row["n"]
        estimate = columns_of(Estimate(share, *wilson_interval(share, n)))
        known = {"dataset": row["dataset"], "n": n, "n_unparsed": int(row["undecided"])}
        rows.append({"metric": "rejected", **known, **estimate})
    return KIND.table(rows, model=asked.name, seed=seed)
