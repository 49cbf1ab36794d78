"""LAID's matrices of a CLIP that comes without them."""

import torch
from clip_towers import clip

from ood_lab.builtin.vessels import caption_labels, caption_templates
from ood_lab.evaluation.shift.shift_encoder import LaidSettings, learnt, load_decompositions


def test_matrices_are_learnt_once_for_a_clip(tmp_path):
    settings = LaidSettings(
        labels=caption_labels(),
        templates=caption_templates(),
        max_epochs=1,
        most_labels=12,
        settings={"steps_per_epoch": 3, "batch_size": 16},
    )
    model = clip("t-vit")
    folder = learnt(model, tmp_path, settings)
    laid, pca, whole = load_decompositions(model, str(folder))
    identity = torch.eye(model.embed_dim)
    torch.testing.assert_close(laid.W.T @ laid.W, identity, atol=1e-4, rtol=0)
    assert (pca.width, whole.halves_are_equal) == (model.embed_dim, True)
    before = (folder / "laid.safetensors").stat().st_mtime_ns
    assert learnt(model, tmp_path, settings) == folder
    assert (folder / "laid.safetensors").stat().st_mtime_ns == before
    assert len(settings.labels) == 12
