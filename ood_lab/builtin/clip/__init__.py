"""How the shipped CLIPs were made: contrastive training on captions of what is builtin."""

from ood_lab.builtin.clip.contrastive_training import ClipTraining, untrained_backbone

__all__ = ["ClipTraining", "untrained_backbone"]
