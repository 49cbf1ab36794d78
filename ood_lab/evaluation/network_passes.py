"""What the passes of the networks over the images leave: features, or only scores."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ood_lab.common.grouping import with_keys
from ood_lab.detectors.base import Detectors, Reasons
from ood_lab.evaluation.detector_tuning import Tuning
from ood_lab.evaluation.ensembles import HELD_OUT, EnsembleMember, same_network
from ood_lab.evaluation.near_copies import NearCopies, with_near_copies
from ood_lab.evaluation.split_features import Extraction, PassPlan
from ood_lab.evaluation.streaming_scores import Fitted, fit_before
from ood_lab.models import Backbone


@dataclass(frozen=True, kw_only=True)
class ScoringInput:
    """What detectors are fitted and scored on; without banks on all but the main process.

    Attributes:
        limit: bytes that a detector's fit may take, looked at before the banks took their share.
        usable: detectors that the network supports.
        refused: why it does not support the others.
        banks: features of the sets, by name; with ``fitted``, what is left of the evaluated ones.
        fitted: the detectors, where they were fitted before the images passed.
        members: further networks of an ensemble.
        copies: near copies among the images.
        warnings: of networks of an ensemble that are one.
        ood: names of the OOD sets to evaluate.
    """

    limit: int
    usable: Detectors
    refused: Reasons
    banks: Mapping[str, Any] = field(default_factory=dict)
    fitted: Fitted | None = None
    members: Sequence[EnsembleMember] = ()
    copies: NearCopies = field(default_factory=NearCopies)
    warnings: Sequence[str] = ()
    ood: Sequence[str] = ()


def extracted(
    inputs: ScoringInput,
    extraction: Extraction,
    plan: PassPlan,
    networks: Iterable[tuple[str | None, Callable[[], Backbone]]],
    new_detectors: Callable[[], Detectors],
) -> ScoringInput:
    """Extracts the features of all networks; call it on all ranks.

    Args:
        inputs: so far.
        extraction: makes the passes.
        plan: of the sets.
        networks: what loads each further one of an ensemble, by its name; a sample by dropout
            has none.
        new_detectors: makes detectors that are not fitted.
    """
    usable, limit, members = inputs.usable, inputs.limit, list[EnsembleMember]()
    banks, copies = with_near_copies(extraction.data, extraction.banks(usable, plan))
    identities, same = {extraction.passes.network}, []
    for name, load in networks:
        other = replace(extraction, backbone=load(), always=())
        if name and other.passes.network in identities:
            same.append(name)
            continue
        identities.add(other.passes.network)
        detectors = with_keys(new_detectors(), usable)
        members.append(EnsembleMember.passed(name, other, detectors, plan, limit))
    extraction.data.use_transform(eval=extraction.backbone.transform)
    evaluated = ["test", *plan.evaluated]
    scored = dict.fromkeys([*evaluated, HELD_OUT] if members else evaluated)
    with extraction.stages("score"):
        extraction.second_pass(usable, banks, list(scored), limit)
    warnings = same_network(same, len(members))
    return replace(inputs, banks=banks, members=members, copies=copies, warnings=warnings)


def streamed(
    inputs: ScoringInput,
    extraction: Extraction,
    plan: PassPlan,
    tuning: Tuning,
    folder: Path,
    seed: int,
) -> ScoringInput:
    """Fits first, and then scores the evaluated sets while they pass; call it on all ranks.

    ``inputs`` are those so far, ``folder`` gets the parts of the scores, and ``seed`` is that of
    the tuning.
    """
    banks: dict[str, Any] = dict(extraction.for_fits(inputs.usable, tuning.splits))
    with extraction.stages("score"):
        fitted = fit_before(extraction.trainer, inputs.usable, banks, tuning, inputs.limit, seed)
    for split in ["test", *plan.evaluated]:
        columns = plan.of_test if split == "test" else ()
        rest = extraction.scored(split, fitted.detectors, folder, columns)
        banks |= {} if rest is None else {split: rest}
    return replace(inputs, refused=inputs.refused | fitted.refused, banks=banks, fitted=fitted)
