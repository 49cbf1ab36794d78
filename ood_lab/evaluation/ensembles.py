"""Several networks on the same images: means of their probabilities and of their p-values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from ood_lab.common.errors import UserError
from ood_lab.detectors.base import Detectors
from ood_lab.evaluation.detector_fitting import score_banks
from ood_lab.evaluation.split_features import Extraction, PassPlan, split_by_columns
from ood_lab.features.bank import Banks
from ood_lab.schema.arrays import Floats
from ood_lab.schema.run_record import Facts

#: What tables say that the columns of an ensemble read.
FAMILY = "ensemble"
#: Set whose scores calibrate those of a member; it is not evaluated.
HELD_OUT = "val"


@dataclass
class EnsembleMember:
    """A network of an ensemble: its banks, its detectors, and once scored its table.

    Attributes:
        name: what its columns are called, as in ``knn@2``; None = it has none of its own.
        detectors: of its own, that it can serve.
        banks: of the sets, by name; empty on other ranks.
    """

    name: str | None
    detectors: Detectors
    banks: Banks
    scores: pd.DataFrame = field(default_factory=pd.DataFrame)

    @classmethod
    def passed(
        cls,
        name: str | None,
        extraction: Extraction,
        detectors: Detectors,
        plan: PassPlan,
        limit: int,
    ) -> EnsembleMember:
        """Makes its passes, or reads them from the bank; call it on all processes."""
        usable, _ = split_by_columns(detectors, extraction.backbone)
        banks = extraction.banks(usable, replace(plan, of_test=(), images=()))
        extraction.second_pass(usable, banks, ["test", *plan.evaluated], limit)
        return cls(name, usable, banks)

    def score(self, sets: Sequence[str], limit: int) -> None:
        """Fits and scores its detectors."""
        rows = {n: pd.DataFrame({"dataset": [n] * len(self.banks[n])}) for n in sets}
        self.scores, _ = score_banks(rows, self.banks, self.detectors, {}, limit)

    def probabilities(self, sets: Sequence[str]) -> Tensor:
        """Of all rows of the sets, ``[N, C] float64``."""
        return torch.cat([self.banks[split].logits.double() for split in sets]).softmax(dim=1)


def predictive(probabilities: Tensor) -> dict[str, Floats]:
    r"""Scores of the probabilities of M networks, ``[M, N, C]``, higher = more OOD.

    With the mean :math:`\bar p`, ``predictive_msp`` is :math:`-\max \bar p` (arXiv 1612.01474),
    ``predictive_entropy`` :math:`H(\bar p)`, and ``mutual_information``
    :math:`H(\bar p) - \frac1M \sum_m H(p_m)`, which is 0 where all agree (arXiv 1112.5745).
    """
    mean = probabilities.mean(dim=0)
    entropy = torch.special.entr(mean).sum(dim=1)
    of_each = torch.special.entr(probabilities).sum(dim=2).mean(dim=0)
    columns = {"predictive_msp": -mean.amax(dim=1), "predictive_entropy": entropy}
    columns["mutual_information"] = entropy - of_each
    return {name: values.numpy() for name, values in columns.items()}


def p_values(scores: Floats, held_out: Floats) -> Floats:
    """(1 + #{held-out ≥ s}) / (n + 1), see :class:`~ood_lab.detectors.CalibratedDetector`."""
    below = np.searchsorted(np.sort(held_out), scores, side="left")
    return np.asarray((1 + len(held_out) - below) / (len(held_out) + 1))


def ensemble_columns(
    members: Sequence[EnsembleMember], sets: Sequence[str]
) -> tuple[dict[str, Floats], float | None]:
    """Columns of the ensemble over the rows of ``sets``, and its accuracy on ID test.

    The accuracy is None where the head has other classes than the data, or ID test has no labels.
    ``ensemble_<detector>`` is minus the mean p-value over the members, each calibrated on its own
    scores of ID val. All members must be scored, on ID val and ``sets``.
    """
    columns = predictive(torch.stack([member.probabilities(sets) for member in members]))
    for name in members[0].detectors:
        if all(name in member.scores for member in members):
            mean_p = []
            for table in (member.scores for member in members):
                held_out = table.loc[table["dataset"] == HELD_OUT, name].to_numpy()
                mean_p.append(p_values(of_sets(table, sets)[name].to_numpy(), held_out))
            columns[f"ensemble_{name}"] = -np.mean(mean_p, axis=0)
    test = members[0].banks["test"]
    labelled = test.labels >= 0
    if test.label_classes is not None or not bool(labelled.any()):
        return columns, None
    mean = torch.stack([member.probabilities(["test"]) for member in members]).mean(dim=0)
    return columns, float((mean.argmax(dim=1) == test.labels)[labelled].double().mean())


def same_network(same: Sequence[str], left: int) -> list[str]:
    """What to warn of runs of an ensemble whose network another one has.

    Args:
        same: their numbers.
        left: number of the others but the first.

    Raises:
        UserError: no other network is left.
    """
    if not same:
        return []
    reason = "a head that is fitted on frozen features depends on no seed"
    if not left:
        raise UserError(
            f"all runs of the ensemble have one network: {reason}. Choose runs of several networks"
        )
    runs = f"run {same[0]} has" if len(same) == 1 else f"runs {', '.join(same)} have"
    return [f"ensemble: {runs} the network of another run, so it counts once: {reason}"]


def with_ensemble(
    first: EnsembleMember, members: Sequence[EnsembleMember], sets: Sequence[str], limit: int
) -> tuple[pd.DataFrame, Facts, Facts]:
    """The scores of a network with those of an ensemble and of its other networks.

    Args:
        first: the network, scored.
        members: the ensemble, to be scored; the first has no name where ``first`` is one of them.
        sets: that are evaluated.
        limit: bytes that a fit may take.

    Returns:
        The table of ``sets``, what the manifest says of each new column, and of the ensemble: its
        ``networks`` and ``id_accuracy``.
    """
    for member in members:
        member.score([*sets, HELD_OUT], limit)
    networks = [first, *members] if members[0].name else members
    columns, accuracy = ensemble_columns(networks, sets)
    facts = {name: {"input_type": FAMILY} for name in columns}
    for member in members:
        for name in filter(member.scores.__contains__, member.detectors if member.name else ()):
            columns[f"{name}@{member.name}"] = of_sets(member.scores, sets)[name].to_numpy()
            facts[f"{name}@{member.name}"] = {"input_type": member.detectors[name].input_type}
    table = pd.concat([of_sets(first.scores, sets), pd.DataFrame(columns)], axis=1)
    return table, facts, {"networks": len(networks), "id_accuracy": accuracy}


def of_sets(scores: pd.DataFrame, sets: Sequence[str]) -> pd.DataFrame:
    """Only the rows of the sets."""
    return scores[scores["dataset"].isin(sets)].reset_index(drop=True)
