"""The split itself: reference values, invariances, files, baselines."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import load_file, save_file
from sklearn.decomposition import PCA

from ood_lab.clip.backbone import check_templates
from ood_lab.common.errors import UserError
from ood_lab.schema.image_columns import AXES
from ood_lab.shift import (
    Decomposition,
    FeatureGrid,
    LaidTraining,
    Triplets,
    encode_grid,
    hinge_loss,
    imagenet21k_labels,
    imagenet_templates,
    load_decomposition,
    orthogonality_error,
    pca_decomposition,
    polar_factor,
    read_texts,
    save_decomposition,
    text_grid,
    triplet_distances,
    undecomposed,
)
from ood_lab.shift.laid import energy_shares

CLIP = {"name": "toy", "weights_sha256": "a" * 64}


def sine(n, a, b, scale=1.0):
    return torch.from_numpy(scale * np.sin(a * np.arange(n) + b))


def halves(split, features):
    return [split.part(features, axis) for axis in AXES]


def random_split(width=6, seed=0):
    W = polar_factor(torch.randn(width, width, generator=torch.Generator().manual_seed(seed)))
    return Decomposition("laid", W, width // 2, CLIP)


def planted_grid(labels=40, templates=20, width=32, seed=0):
    """Texts = common mean + label factor + template factor, in a random basis."""
    g = torch.Generator().manual_seed(seed)
    basis = polar_factor(torch.randn(width, width, generator=g))
    a = torch.randn(labels, width // 2, generator=g) @ basis[: width // 2]
    p = torch.randn(templates, width // 2, generator=g) @ basis[width // 2 :]
    common = 3 * torch.randn(width, generator=g)
    noise = 0.3 * torch.randn(labels, templates, width, generator=g)
    return FeatureGrid(F.normalize(common + a[:, None] + p + noise, dim=-1)), basis


@pytest.mark.parametrize(
    ("perturbation", "expected"),
    [
        (0.0, [0.011509, 0.173726, 0.212608, 0.095609, 0.037783, 0.316999, 0]),
        (0.1, [0.014554, 0.187097, 0.221910, 0.088566, 0.027457, 0.333344, 0.347816]),
    ],
)
def test_reference_values(perturbation, expected):
    W = torch.eye(6, dtype=torch.float64) + perturbation * sine(36, 1.7, 0.2).view(6, 6)
    d = triplet_distances(W, sine(6, 0.9, 0.1), sine(6, 0.9, 0.8), sine(6, 1.0, 0.2))
    found = [*d[0], *d[1], *(hinge_loss(half, margin=0.2) for half in d), orthogonality_error(W)]
    np.testing.assert_allclose([float(x) for x in found], expected, atol=1e-6)


def test_hinge_is_zero_beyond_the_margin():
    d = triplet_distances(
        torch.eye(4),
        torch.tensor([[1.0, 0, 1, 0]]),
        torch.tensor([[-1.0, 0, 1, 0]]),
        torch.tensor([[1.0, 0, -1, 0]]),
    )
    assert [float(hinge_loss(half, margin=0.3)) for half in d] == [0, 0]


def test_split_equals_products_and_ignores_length():
    split = random_split()
    features = torch.randn(5, 6)
    semantic, covariate = halves(split, features)
    g = features.numpy() @ split.W.numpy()
    np.testing.assert_allclose(
        semantic, g[:, :3] / np.linalg.norm(g[:, :3], axis=1, keepdims=True), atol=1e-6
    )
    for scaled, half in zip(
        halves(split, features * torch.rand(5, 1).add(0.1) * 100),
        (semantic, covariate),
        strict=True,
    ):
        assert torch.allclose(scaled, half, atol=1e-6)
    assert sum(energy_shares(split.W, 3, features)) == pytest.approx(1, abs=1e-5)


def test_rotation_inside_a_half_changes_no_distance():
    split, features = random_split(8), torch.randn(9, 8)
    rotation = torch.block_diag(random_split(4, 1).W, random_split(4, 2).W)
    turned = Decomposition("laid", split.W @ rotation, 4, CLIP)
    for a, b in zip(halves(split, features), halves(turned, features), strict=True):
        assert torch.allclose(a @ a.T, b @ b.T, atol=1e-5)
        assert not torch.allclose(a, b, atol=1e-2)


def test_polar_factor_is_the_nearest_orthogonal_matrix():
    noisy = random_split(6).W + 0.05 * torch.randn(6, 6)
    near = polar_factor(noisy)
    assert float(orthogonality_error(near)) < 1e-10
    # W (W^T W)^(-1/2), the second formula
    values, vectors = torch.linalg.eigh((noisy.T @ noisy).double())
    root = vectors @ torch.diag(values**-0.5) @ vectors.T
    assert torch.allclose(near, (noisy.double() @ root).float(), atol=1e-5)


@pytest.mark.slow
def test_planted_factors_are_recovered():
    seed_everything(0, verbose=False)
    grid, basis = planted_grid()
    module = LaidTraining(
        grid,
        CLIP,
        margin=0.5,
        lr=1e-2,
        batch_size=64,
        steps_per_epoch=75,
    )
    trainer = Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(module)
    logged = {name: float(value) for name, value in trainer.logged_metrics.items()}
    assert logged["val/accuracy_semantic"] > 0.95
    assert logged["val/accuracy_covariate"] > 0.95
    assert logged["val/orthogonality_error"] < 0.05
    total = logged["val/energy_semantic"] + logged["val/energy_covariate"]
    assert total == pytest.approx(1, abs=0.05)

    split = module.decomposition()
    assert float(orthogonality_error(split.W)) < 1e-9
    assert split.details["steps"] == 150
    # The semantic half must hold most of the label factor's span, and little of the template's.
    share = (basis @ split.W)[:, :16].square().sum(1)
    assert share[:16].mean() > 0.8
    assert share[16:].mean() < 0.2


class StopAfterOne(Callback):
    def on_train_epoch_end(self, trainer, pl_module):
        trainer.should_stop = True


def test_a_resumed_training_ends_with_the_matrix_of_an_undisturbed_one(tmp_path):
    def trained(*callbacks, **options):
        seed_everything(0, verbose=False)
        module = LaidTraining(planted_grid()[0], CLIP, batch_size=8, steps_per_epoch=5)
        quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary"), False)
        # The length of the schedule is that of the whole training.
        trainer = Trainer(max_epochs=3, accelerator="cpu", callbacks=list(callbacks), **quiet)
        trainer.fit(module, **options)
        return module.W.detach()

    whole = trained(ModelCheckpoint(tmp_path / "whole"))
    trained(StopAfterOne(), ModelCheckpoint(tmp_path / "one", save_last=True))
    last = tmp_path / "one/last.ckpt"
    resumed = trained(ModelCheckpoint(tmp_path / "more"), ckpt_path=last)
    assert torch.equal(resumed, whole)


def test_held_out_texts_are_never_trained_on():
    module = LaidTraining(planted_grid(20, 10)[0], CLIP, seed=3)
    for kept, held_out in (module.labels, module.templates):
        assert not set(kept.tolist()) & set(held_out.tolist())
        assert len(held_out) == 2
    same = LaidTraining(planted_grid(20, 10)[0], CLIP, seed=3)
    assert torch.equal(same.W, module.W)
    assert torch.equal(same.labels[0], module.labels[0])


def test_triplets_share_what_they_should():
    # Feature (label, template): its two coordinates name it.
    table = torch.stack(
        torch.meshgrid(torch.arange(1, 8.0), torch.arange(1, 6.0), indexing="ij"), dim=-1
    )

    class Names:
        shape = (7, 5, 2)

        def features(self, labels, templates):
            return table[labels, templates]

    triplets = Triplets(Names(), torch.tensor([0, 2, 5]), torch.tensor([1, 4]), 2, 200, 0)
    start, semantic, covariate = triplets[0]
    assert set(start[:, 0].tolist()) == {1, 3, 6}
    assert (start[:, 1] == semantic[:, 1]).all()
    assert (start[:, 0] == covariate[:, 0]).all()
    assert (start[:, 0] != semantic[:, 0]).all()
    assert (start[:, 1] != covariate[:, 1]).all()


@pytest.mark.parametrize(
    ("shape", "match"),
    [((3, 9, 4), "4 labels"), ((9, 3, 4), "4 templates")],
)
def test_too_small_grids_are_refused(shape, match):
    with pytest.raises(UserError, match=match):
        LaidTraining(FeatureGrid(torch.randn(shape)), CLIP)


def test_file_round_trip_and_refusal_of_another_clip(tmp_path):
    split = Decomposition("laid", random_split().W, 3, CLIP, 7, {"margin": 0.3})
    path = tmp_path / "deep" / "laid.safetensors"
    save_decomposition(path, split)
    loaded = load_decomposition(path, {"name": "by another name", "weights_sha256": "a" * 64})
    assert torch.equal(loaded.W, split.W)
    assert loaded.W.dtype == torch.float32
    assert (loaded.name, loaded.k) == ("laid", 7)
    assert loaded.details == {"margin": 0.3}
    assert set(load_file(path)) == {"W"}
    assert [p.name for p in path.parent.iterdir()] == ["laid.safetensors"]
    with pytest.raises(UserError, match=r"made for the CLIP 'toy' .*this run uses 'other'"):
        load_decomposition(path, {"name": "other", "weights_sha256": "b" * 64})


def test_other_files_are_refused(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        load_decomposition(tmp_path / "none", CLIP)
    save_file({"W": torch.eye(2)}, tmp_path / "plain")
    with pytest.raises(UserError, match="is not a decomposition"):
        load_decomposition(tmp_path / "plain", CLIP)
    key = {"ood_lab_decomposition": json.dumps({"format": 99})}
    save_file({"W": torch.eye(2)}, tmp_path / "newer", metadata=key)
    with pytest.raises(UserError, match="format 99"):
        load_decomposition(tmp_path / "newer", CLIP)
    key = {"ood_lab_decomposition": json.dumps({"format": 1})}
    save_file({"W": torch.eye(2)}, tmp_path / "damaged", metadata=key)
    with pytest.raises(UserError, match="damaged"):
        load_decomposition(tmp_path / "damaged", CLIP)


def test_undecomposed_halves_are_the_whole_feature():
    split, features = undecomposed(6, CLIP), torch.randn(4, 6)
    for half in halves(split, features):
        assert torch.allclose(half, F.normalize(features), atol=1e-6)


def test_pca_baseline_equals_scikit_learn():
    grid, _ = planted_grid(30, 12, 16)
    split = pca_decomposition(grid, CLIP)
    x = grid.table.double().numpy()
    halves = split.W.tensor_split([split.semantic_width], dim=1)
    for axis, P in zip((0, 1), halves, strict=True):
        centred = (x - x.mean(axis=axis, keepdims=True)).reshape(-1, 16)
        theirs = PCA(n_components=0.9, svd_solver="full").fit(centred).components_
        assert P.shape[1] == len(theirs)
        # Signs are free: compare the projectors.
        np.testing.assert_allclose(
            P.double().numpy() @ P.double().numpy().T, theirs.T @ theirs, atol=1e-5
        )


def test_grids_of_texts(monkeypatch):
    def encode(texts):
        return torch.tensor([[len(t), t.count("a"), 1.0] for t in texts])

    labels, templates = ["ant", "banana", "c"], ["a {}", "see the {}.", "{}"]
    monkeypatch.setattr(text_grid, "_CHUNK", 4)
    kept = encode_grid(labels, templates, encode)
    assert kept.table.shape == (3, 3, 3)
    rows, columns = torch.tensor([0, 1, 2, 1]), torch.tensor([1, 1, 0, 2])
    expected = F.normalize(encode(["see the ant.", "see the banana.", "a c", "banana"]))
    assert torch.allclose(kept.features(rows, columns), expected, atol=1e-3)


def test_texts(tmp_path):
    labels, templates = imagenet21k_labels(), imagenet_templates()
    assert len(labels) == len(set(labels)) == 20_099
    assert len(templates) == 80
    check_templates(templates)
    with pytest.raises(UserError, match=r"template 'a photo' must hold one"):
        check_templates(["a photo"])
    path = tmp_path / "labels.txt"
    path.write_text("# vessels\n ding \n\ngui\nding\n")
    assert read_texts(path) == ["ding", "gui"]
    path.write_text("# nothing\n")
    with pytest.raises(UserError, match="is empty"):
        read_texts(path)
    with pytest.raises(UserError, match="cannot be read"):
        read_texts(tmp_path / "none.txt")
