"""CLIP models of open_clip: loading, text and image features, zero-shot heads.

The shipped ``tiny`` CLIP (2 million parameters) was trained only on captions of the builtin
vessels. **It knows only vessels**: on any other images or texts its numbers mean nothing.
"""

from ood_lab.clip.backbone import ClipBackbone as ClipBackbone
from ood_lab.clip.backbone import TextHead as TextHead
from ood_lab.clip.backbone import clip_backbone as clip_backbone
from ood_lab.clip.backbone import zero_shot_weights as zero_shot_weights
from ood_lab.clip.frozen_clip import ClipModel as ClipModel
from ood_lab.clip.frozen_clip import LocalFeaturesUnsupported as LocalFeaturesUnsupported
from ood_lab.clip.loading import load_clip as load_clip
from ood_lab.clip.loading import missing_files as missing_files
from ood_lab.clip.loading import untrained_clip as untrained_clip
from ood_lab.clip.weight_sources import shipped_folder as shipped_folder
