"""Hard-sample mining and the detectors of transformers behind it."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ood_lab.common.errors import UserError
from ood_lab.lvlm.annotations.image_contents import ImageLabels
from ood_lab.lvlm.benchmarks.oodbench.question_pairs import HardSamples, hardness
from ood_lab.lvlm.image_text.object_detectors import proposals_of, recorded_proposals

transformers = pytest.importorskip("transformers")


def test_hardness_falls_as_the_probability_rises():
    assert hardness([0.5, 0.9]) == pytest.approx([0.1733, 0.00105], abs=5e-5)
    assert (np.diff(hardness(np.linspace(0.01, 1, 50))) < 0).all()
    assert np.isfinite(hardness(0.0))


@pytest.fixture
def labels():
    present = np.array([[1, 0], [1, 1], [0, 1], [0, 0]], bool)
    return ImageLabels((0, 1, 2, 3), ("cat", "dog"), present)


def test_the_hardest_of_each_image_and_class_then_of_each_class(labels):
    rows = [
        (0, "cat", 0.9),
        (0, "cat", 0.3),  # harder than the other cat of its image
        (1, "cat", 0.6),
        (1, "dog", 0.8),
        (2, "dog", 0.4),
        (3, "dog", 0.5),
        (3, "zebra", 0.1),  # no category
    ]
    proposals = pd.DataFrame(rows, columns=["image", "category", "p"])
    everything = HardSamples(share=1.0).mine(proposals, labels)
    assert everything[["image", "category"]].to_numpy().tolist() == [
        [0, "cat"],
        [1, "cat"],
        [2, "dog"],
        [3, "dog"],
        [1, "dog"],
    ]
    assert everything["p"].tolist() == [0.3, 0.6, 0.4, 0.5, 0.8]
    assert everything["present"].tolist() == [True, True, True, False, True]
    half = HardSamples(share=0.5).mine(proposals, labels)
    assert half[["image", "category"]].to_numpy().tolist() == [[0, "cat"], [2, "dog"], [3, "dog"]]
    with pytest.raises(UserError, match="none of the annotated categories: zebra"):
        HardSamples().mine(proposals[proposals["category"] == "zebra"], labels)


def test_the_share_is_of_the_kept_proposals_not_of_the_pairs(labels):
    """Algorithm 1: of each image k, of those q percent; k = 2 keeps four, of which half are two."""
    rows = [(0, "cat", 0.2), (0, "cat", 0.3), (1, "cat", 0.5), (1, "cat", 0.6), (2, "cat", 0.9)]
    proposals = pd.DataFrame(rows, columns=["image", "category", "p"])
    one = HardSamples(per_image=1, share=0.5).mine(proposals, labels)
    two = HardSamples(per_image=2, share=0.4).mine(proposals, labels)
    assert one["image"].tolist() == [0, 1]
    assert two[["image", "p"]].to_numpy().tolist() == [[0, 0.2]]


def test_a_detector_of_transformers_gives_proposals(tmp_path):
    names = {0: "cat", 1: "dog"}
    config = transformers.YolosConfig(
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        image_size=[32, 32],
        patch_size=8,
        num_detection_tokens=4,
        id2label=names,
        label2id={v: k for k, v in names.items()},
    )
    transformers.YolosForObjectDetection(config).save_pretrained(tmp_path)
    size = {"height": 32, "width": 32}
    transformers.YolosImageProcessor(size=size, do_pad=False).save_pretrained(tmp_path)
    files = [tmp_path / f"{i}.png" for i in range(3)]
    for file in files:
        Image.new("RGB", (40, 32), (200, 10, 10)).save(file)
    images = dict(zip([7, 8, 9], files, strict=True))
    found = proposals_of(str(tmp_path), 0.0, images, 2)
    assert set(found["image"]) == {7, 8, 9}
    assert set(found["category"]) <= {"cat", "dog"}
    assert len(found) == 3 * 4
    assert found["p"].between(0, 1).all()
    with pytest.raises(UserError, match="no model can be loaded"):
        proposals_of(str(tmp_path / "nowhere"), 0.0, images, 2)


def test_results_of_another_detector_are_read_by_the_numbers_of_the_annotations(tmp_path):
    categories = [{"id": 18, "name": "dog"}, {"id": 17, "name": "cat"}]
    named = {"images": [{"id": 139}, {"id": 7}], "categories": categories}
    annotations, results = tmp_path / "instances.json", tmp_path / "predictions.json"
    annotations.write_text(json.dumps(named))
    rows = [(139, 17, 0.9), (7, 18, 0.05), (7, 17, 0.0499)]
    boxes = [
        {"image_id": i, "category_id": c, "bbox": [0, 0, 1, 1], "score": s} for i, c, s in rows
    ]
    results.write_text(json.dumps(boxes))
    found = recorded_proposals(results, annotations, threshold=0.05)
    assert found.to_numpy().tolist() == [[139, "cat", 0.9], [7, "dog", 0.05]]
    boxes[0]["category_id"] = 99
    results.write_text(json.dumps(boxes))
    with pytest.raises(UserError, match=r"category_id 99 is not in '.*instances.json'"):
        recorded_proposals(results, annotations, threshold=0.05)
    results.write_text(json.dumps([{"image_id": 7}]))
    with pytest.raises(UserError, match="is no list of COCO results"):
        recorded_proposals(results, annotations, threshold=0.05)
