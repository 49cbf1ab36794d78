"""CLIP against OOD: zero-shot scores (MCM, GL-MCM, CLIPN) and prompt learning (CoOp and others).

A trained method is a backbone (normalised image features, learned texts as the linear head), and
its own score a detector, so that both are in one table with all the others.
"""

from ood_lab.prompts.backbone import idlike_backbone, prompt_backbone
from ood_lab.prompts.clipn import clipn_backbone
from ood_lab.prompts.clipn_score import CLIPNScore
from ood_lab.prompts.coop import CoOp, PromptLearner
from ood_lab.prompts.idlike import IDLike
from ood_lab.prompts.idlike_score import IDLikeScore
from ood_lab.prompts.locoop import LoCoOp
from ood_lab.prompts.mcm import GLMCM, LMCM, MCM
from ood_lab.prompts.random_crops import RandomViews
from ood_lab.prompts.schedule import warmup_cosine

__all__ = [
    "GLMCM",
    "LMCM",
    "MCM",
    "CLIPNScore",
    "CoOp",
    "IDLike",
    "IDLikeScore",
    "LoCoOp",
    "PromptLearner",
    "RandomViews",
    "clipn_backbone",
    "idlike_backbone",
    "prompt_backbone",
    "warmup_cosine",
]
