"""What every detector over cached features promises, driven by the YAML files themselves."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from hydra.utils import instantiate
from sklearn.metrics import roc_auc_score

from ood_lab.common.errors import UserError
from ood_lab.detectors import knn
from ood_lab.detectors.base import check_memory, checked_score
from ood_lab.detectors.support import chunked_arithmetic, neighbour_search
from ood_lab.neighbours import row_blocks
from ood_lab.neighbours.row_blocks import Blocks

FOLDER = Path(__file__).parents[2] / "conf" / "detector"
IN_PASS = {"odin", "iodin", "gram", "rankfeat", "adascale_a", "adascale_l", "mds_ensemble"}
IN_PASS |= {"patch_knn"}
EVERY = yaml.safe_load((FOLDER / "all.yaml").read_text())["defaults"]
CACHED = sorted(set(EVERY) - IN_PASS)
PRESETS = ("openood", "paper", "auto")


def build(name, preset="openood", **overrides):
    """The detector of a YAML file; ``${preset:A,B,C}`` is A of openood, B of paper, C of auto."""
    text = (FOLDER / f"{name}.yaml").read_text()
    place = PRESETS.index(preset) + 1
    text = re.sub(r"\$\{preset:(\w+),(\w+),?(\w*)\}", lambda found: found[place] or found[1], text)
    return instantiate(yaml.safe_load(text)["detector"][name], **overrides)


def fitted(name, blobs, preset="openood"):
    detector = build(name, preset)
    return detector.fit(getattr(blobs, detector.fit_split)) if detector.fit_split else detector


def auroc(detector, blobs):
    scores = [detector.score(bank) for bank in (blobs.test, blobs.ood)]
    truth = np.repeat([0, 1], [len(part) for part in scores])
    return roc_auc_score(truth, torch.cat(scores).numpy())


def snapshot(bank):
    return {key: getattr(bank, key).clone() for key in ("features", "logits", "labels")}


def unchanged(bank, before):
    return all(torch.equal(getattr(bank, key), value) for key, value in before.items())


@pytest.mark.parametrize("name", CACHED)
def test_scores_are_finite_float64_and_higher_for_ood(name, blobs):
    detector = fitted(name, blobs)
    scores = checked_score(detector, blobs.ood)
    assert scores.shape == (len(blobs.ood),)
    assert detector.score(blobs.ood).dtype == torch.float64
    assert auroc(detector, blobs) > 0.85
    assert detector.name == name
    assert detector.extraction_hook is None


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", CACHED)
def test_fitted_tensors_are_the_whole_state(name, preset, blobs):
    detector, fresh = fitted(name, blobs, preset), build(name, preset)
    assert all(isinstance(value, torch.Tensor) for value in detector.fitted.values())
    fresh.fitted = {key: value.clone() for key, value in detector.fitted.items()}
    fresh.used = detector.used
    assert torch.equal(fresh.score(blobs.ood), detector.score(blobs.ood))
    assert fresh.describe() == detector.describe()


@pytest.mark.parametrize("name", CACHED)
def test_neither_fit_nor_score_writes_to_the_bank(name, blobs):
    banks = (blobs.train, blobs.val, blobs.ood)
    before = [snapshot(bank) for bank in banks]
    fitted(name, blobs).score(blobs.ood)
    assert all(map(unchanged, banks, before))


@pytest.mark.parametrize("name", CACHED)
def test_a_score_does_not_depend_on_the_other_rows(name, blobs):
    detector = fitted(name, blobs)
    whole = detector.score(blobs.test)
    order = torch.randperm(len(whole), generator=torch.Generator().manual_seed(1))
    for rows in (order, order[:7], order[:1], order[:0]):
        part = detector.score(blobs.test.rows(rows))
        torch.testing.assert_close(part, whole[rows], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CACHED)
def test_chunks_do_not_change_the_scores(name, blobs, monkeypatch):
    expected = fitted(name, blobs).score(blobs.test)
    monkeypatch.setattr(chunked_arithmetic, "CHUNK_BYTES", 8 * 32 * 7)
    monkeypatch.setattr(knn, "QUERIES", 9)
    monkeypatch.setitem(row_blocks._BLOCKS, "cpu", Blocks(7, 13))
    monkeypatch.setattr(neighbour_search, "QUERIES", 9)
    actual = fitted(name, blobs).score(blobs.test)
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", CACHED)
def test_extreme_rows_get_finite_scores(name, blobs, make_bank):
    head = blobs.test.head_weight, blobs.test.head_bias
    rows = torch.stack([torch.zeros(32), torch.full((32,), 1e4), torch.eye(32)[3] * 1e3])
    bank = make_bank(torch.cat([rows, rows]), torch.zeros(6, dtype=torch.int64), *head)
    scores = checked_score(fitted(name, blobs), bank)
    # Equal rows tie, but for the order of sums in a matrix product, which threads change.
    torch.testing.assert_close(scores[:3], scores[3:], rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", CACHED)
def test_dead_and_repeated_features_are_harmless(name, blobs, make_bank):
    def widened(bank):
        extra = [bank.features[:, :3], torch.zeros(len(bank), 2), bank.features[:, :2] * 0.3]
        weight = torch.cat([bank.head_weight, torch.zeros(5, 7)], dim=1)
        features = torch.cat([bank.features, *extra], dim=1)
        return make_bank(features, bank.labels, weight, bank.head_bias)

    wide = type(blobs)(**{key: widened(bank) for key, bank in vars(blobs).items()})
    detector = fitted(name, wide)
    checked_score(detector, wide.ood)
    assert auroc(detector, wide) > 0.85


@pytest.mark.parametrize("name", CACHED)
def test_the_memory_estimate_is_checked_before_a_fit(name):
    detector = build(name)
    need = detector.fit_memory(10_000, 512, 100)
    check_memory(detector, 10_000, 512, 100, need)
    if need:
        with pytest.raises(
            UserError, match=f"{type(detector).__name__} takes .* GB for .*; limit .* GB: "
        ):
            check_memory(detector, 10_000, 512, 100, need // 2)


def test_the_memory_message_of_knn_says_what_fits():
    detector = build("knn")
    with pytest.raises(UserError) as caught:
        check_memory(detector, 1_281_167, 2048, 1000, 8 * 10**9)
    message, fits = str(caught.value).rsplit("=", 1)
    assert message == (
        "KNN takes 10.5 GB for 1,281,167 x 2,048 features and 1,000 classes; limit 8 GB: set "
        "detector.knn.max_bank"
    )
    fits = int(fits)
    check_memory(build("knn", max_bank=fits), 1_281_167, 2048, 1000, 8 * 10**9)
    assert fits > 900_000


def test_non_finite_scores_stop_the_run_naming_detector_and_rows(blobs):
    logits = blobs.test.logits.clone()
    logits[[3, 8]] = torch.nan
    bank = replace(blobs.test, logits=logits)
    with pytest.raises(UserError, match=r"ebo gave NaN .* 2 of 200 images \(first rows: 3, 8\)"):
        checked_score(build("ebo"), bank)


def test_presets_are_the_documented_ones():
    def settings(preset):
        return {name: build(name, preset).describe() for name in CACHED}

    openood, paper = settings("openood"), settings("paper")
    assert openood["knn"]["k"] == 50
    assert paper["knn"]["k"] == "authors"
    assert openood["dice"]["percentile"] == 90
    assert paper["dice"]["percentile"] == "authors"
    assert openood["vim"]["dim"] == 256
    assert paper["vim"]["dim"] == "authors"
    assert (openood["openmax"]["alpha"], openood["openmax"]["translate"]) == (3, 1)
    assert (paper["openmax"]["alpha"], paper["openmax"]["translate"]) == (10, 10000)
    for each in (openood, paper):
        assert each["openmax"]["tail"] == 20
        assert each["react"]["percentile"] == each["ash"]["percentile"] == 90
        assert each["ash"]["variant"] == "b"
        assert each["react"]["fit_split"] == each["klm"]["fit_split"] == "val"


@pytest.mark.parametrize(
    ("name", "overrides", "message"),
    [
        (
            "react",
            {"percentile": 0.9},
            "detector.react.percentile=0.9: give a percentile from 0 to 100",
        ),
        ("ash", {"percentile": 101}, "detector.ash.percentile=101"),
        ("dice", {"percentile": -1}, "detector.dice.percentile=-1"),
        ("ash", {"variant": "x"}, "detector.ash.variant=x: give 'b', 's' or 'p'"),
        ("knn", {"k": 0}, "detector.knn.k=0: give a number from 1 on"),
        ("knn", {"max_bank": 0}, "detector.knn.max_bank=0"),
        ("vim", {"dim": 2.5}, "detector.vim.dim=2.5"),
        ("openmax", {"alpha": 0}, "detector.openmax.alpha=0"),
        ("openmax", {"translate": 0}, "detector.openmax.translate=0: give a number above 0"),
        ("msp", {"temperature": 0}, "detector.msp.temperature=0"),
        ("klm", {"fit_split": "test"}, "detector.klm.fit_split=test: give 'train' or 'val'"),
    ],
)
def test_impossible_settings_are_refused_by_key(name, overrides, message):
    with pytest.raises(Exception, match="detector") as caught:
        build(name, **overrides)
    assert message in str(caught.value)
