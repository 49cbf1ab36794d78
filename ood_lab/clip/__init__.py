"""CLIP models of open_clip: loading, text and image features, zero-shot heads, a CLIP of one's own.

The shipped ``tiny`` CLIP (2 million parameters) was trained on captions of the builtin vessels
alone. **It knows only vessels**: on any other images or texts its numbers mean nothing.
"""

from ood_lab.clip.backbone import ClipBackbone, TextHead, clip_backbone
from ood_lab.clip.folder import save_clip, untrained_clip
from ood_lab.clip.load import load_clip, missing_files
from ood_lab.clip.local import LocalFeaturesUnsupported
from ood_lab.clip.model import ClipModel
from ood_lab.clip.sources import shipped_folder
from ood_lab.clip.tokenizer import WordTokenizer
from ood_lab.clip.zeroshot import zero_shot_weights

__all__ = [
    "ClipBackbone",
    "ClipModel",
    "LocalFeaturesUnsupported",
    "TextHead",
    "WordTokenizer",
    "clip_backbone",
    "load_clip",
    "missing_files",
    "save_clip",
    "shipped_folder",
    "untrained_clip",
    "zero_shot_weights",
]
