"""CLIP against OOD: zero-shot scores (MCM, GL-MCM, CLIPN) and prompt learning (CoOp and others).

A trained method is a backbone (normalised image features, learned texts as the linear head), and
its own score a detector, so that both are in one table with all the others.
"""

from ood_lab.prompts.backbone import prompt_backbone as prompt_backbone
from ood_lab.prompts.clipn import CLIPNScore as CLIPNScore
from ood_lab.prompts.clipn import clipn_backbone as clipn_backbone
from ood_lab.prompts.coop import CoOp as CoOp
from ood_lab.prompts.coop import PromptLearner as PromptLearner
from ood_lab.prompts.coop import warmup_cosine as warmup_cosine
from ood_lab.prompts.idlike import IDLike as IDLike
from ood_lab.prompts.idlike import IDLikeScore as IDLikeScore
from ood_lab.prompts.idlike import RandomViews as RandomViews
from ood_lab.prompts.locoop import LoCoOp as LoCoOp
from ood_lab.prompts.mcm import GLMCM as GLMCM
from ood_lab.prompts.mcm import LMCM as LMCM
from ood_lab.prompts.mcm import MCM as MCM
