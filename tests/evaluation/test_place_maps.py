"""Maps of places over images: where they are drawn, and that an ID image stays calm."""

from __future__ import annotations

import numpy as np
from PIL import Image
from torchvision.transforms import CenterCrop, Compose, Resize, ToTensor

from ood_lab.evaluation.place_maps import seen_box
from ood_lab.report.rendering.heat_overlay import with_map


def test_the_box_is_what_the_transform_keeps():
    crop = Compose([Resize(256), CenterCrop(224), ToTensor()])
    assert seen_box(crop, 512, 512) == (32, 32, 480, 480)
    assert seen_box(crop, 1024, 512) == (288, 32, 736, 480)
    assert seen_box(Compose([Resize((224, 224)), ToTensor()]), 640, 480) == (0, 0, 640, 480)


def test_only_places_above_the_threshold_are_coloured():
    image = Image.fromarray(np.full((80, 80, 3), 120, np.uint8))
    values = np.full((4, 4), 1.0)
    calm = np.asarray(with_map(image, values, 2.0, 5.0, (0, 0, 80, 80)))
    assert (calm == 120).all()
    values[0, 3] = 5.0
    drawn = np.asarray(with_map(image, values, 2.0, 5.0, (0, 0, 80, 80))).astype(int)
    coloured = (drawn.max(axis=2) - drawn.min(axis=2)) > 20
    assert coloured[:10, 70:].all()
    assert not coloured[40:].any()
    assert not coloured[:, :40].any()
