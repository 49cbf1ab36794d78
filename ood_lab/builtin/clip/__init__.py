"""How the shipped CLIPs were made: contrastive training on captions of what is builtin."""

from ood_lab.builtin.clip.contrastive_training import ClipTraining as ClipTraining
from ood_lab.builtin.clip.contrastive_training import untrained_backbone as untrained_backbone
