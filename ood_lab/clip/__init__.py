"""CLIP models of open_clip: loading, text and image features, zero-shot heads, a CLIP of one's own.

The shipped ``tiny`` CLIP (2 million parameters) was trained only on captions of the builtin
vessels. **It knows only vessels**: on any other images or texts its numbers mean nothing.
"""

from ood_lab.clip.backbone import ClipBackbone, TextHead, clip_backbone
from ood_lab.clip.clip_folder import save_clip, untrained_clip
from ood_lab.clip.frozen_clip import ClipModel
from ood_lab.clip.loading import load_clip, missing_files
from ood_lab.clip.local_features import LocalFeaturesUnsupported
from ood_lab.clip.weight_sources import shipped_folder
from ood_lab.clip.zero_shot_head import zero_shot_weights

__all__ = [
    "ClipBackbone",
    "ClipModel",
    "LocalFeaturesUnsupported",
    "TextHead",
    "clip_backbone",
    "load_clip",
    "missing_files",
    "save_clip",
    "shipped_folder",
    "untrained_clip",
    "zero_shot_weights",
]
