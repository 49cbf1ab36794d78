"""LAID's matrices of a CLIP that comes without them."""

import torch
from clip_towers import clip

from ood_lab.evaluation.shift import shift_encoder
from ood_lab.evaluation.shift.shift_encoder import learnt, load_decompositions


def test_matrices_are_learnt_once_for_a_clip(tmp_path, monkeypatch):
    monkeypatch.setattr(shift_encoder, "LABELS", 12)
    monkeypatch.setattr(shift_encoder, "EPOCHS", 1)
    model = clip("t-vit")
    folder = learnt(model, tmp_path)
    laid, pca, whole = load_decompositions(model, str(folder))
    identity = torch.eye(model.embed_dim)
    torch.testing.assert_close(laid.W.T @ laid.W, identity, atol=1e-4, rtol=0)
    assert (len(pca.W), whole.semantic_width) == (model.embed_dim, model.embed_dim)
    before = (folder / "laid.safetensors").stat().st_mtime_ns
    assert learnt(model, tmp_path) == folder
    assert (folder / "laid.safetensors").stat().st_mtime_ns == before
