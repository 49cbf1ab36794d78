"""A calibrated detector in a file, and what its threshold and p-values promise."""

import json
from dataclasses import replace

import pytest
import torch
from detector_toys import close
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from omegaconf import OmegaConf
from safetensors import safe_open
from safetensors.torch import save_file

from ood_lab.common.errors import UserError
from ood_lab.detectors import CalibratedDetector, Detector, load_detector, save_detector
from ood_lab.detectors.deployment.calibration import least_held_out
from ood_lab.run.commandline.resolvers import register_resolvers
from ood_lab.scripts import CONF

NAMES = OmegaConf.load(CONF / "detector" / "all.yaml").defaults
PRESETS = ("openood", "paper")
ALPHA = 0.05


@pytest.fixture(scope="module")
def nodes():
    """The detector nodes of both presets."""
    register_resolvers()
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        choice = "detector=all"
        configs = {p: compose("eval", [choice, f"detector_preset={p}"]) for p in PRESETS}
    return {p: OmegaConf.to_container(c.detector, resolve=True) for p, c in configs.items()}


def with_columns(bank, detector):
    """The bank with made-up values of the column that the detector reads, if any."""
    if detector.extraction_hook is None:
        return bank
    x, c = bank.features, bank.logits.shape[1]
    gram = torch.cat([x, torch.tensor([20.0, 12.0, 2.0]).expand(len(x), -1)], dim=1)
    made = {"gram": gram, "mds_ensemble": gram, "rankfeat": x[:, : 2 * c].reshape(-1, 2, c)}
    made |= dict.fromkeys(["odin", "iodin"], x[:, 0])
    made["patch_knn"] = x[:, None, None].repeat(1, 2, 2, 1)  # the same place four times
    made |= dict.fromkeys(["adascale_a", "adascale_l"], x[:, :2])
    return replace(bank, columns={detector.extraction_hook.key: made[detector.name]})


def calibrated(detector, blobs):
    if detector.fit_split:
        detector.fit(with_columns(getattr(blobs, detector.fit_split), detector))
    scores = detector.score(with_columns(blobs.test, detector))
    classes = ["ding", "鼎", "gui", "jue", "zun"]
    made_from = {"weights_sha256": "a" * 64, "transform": "Resize(64)"}
    return CalibratedDetector.of(detector, scores, ALPHA, classes=classes, **made_from)


def of_scores(scores, alpha):
    made_from = {"classes": [], "weights_sha256": "a" * 64, "transform": "Resize(64)"}
    return CalibratedDetector.of(FirstFeature(), torch.as_tensor(scores), alpha, **made_from)


class FirstFeature(Detector):
    """A user's own detector."""

    name = "first"

    def __init__(self, sign: object = 1) -> None:
        super().__init__()
        self.sign = sign

    def score(self, bank):
        return self.sign * bank.features[:, 0].double()

    def describe(self):
        return {"sign": str(self.sign)}


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", NAMES)
def test_every_detector_comes_back_from_its_file(name, preset, nodes, blobs, tmp_path):
    before = calibrated(instantiate(nodes[preset][name], _convert_="all"), blobs)
    save_detector(tmp_path / "folder" / "it.safetensors", before)
    after = load_detector(tmp_path / "folder" / "it.safetensors")
    assert type(after.detector) is type(before.detector)
    assert after.detector.name == name
    assert after.detector.used_settings() == before.detector.used_settings()
    bank = with_columns(blobs.ood, before.detector)
    scores = after.detector.score(bank)
    assert torch.equal(scores, before.detector.score(bank))
    assert torch.equal(after.p_values(scores), before.p_values(scores))
    assert torch.equal(after.id_scores, before.id_scores)
    for key in ("alpha", "threshold", "classes", "weights_sha256", "transform"):
        assert getattr(after, key) == getattr(before, key)


def test_own_detectors_keep_their_arguments(blobs, tmp_path):
    for detector in (FirstFeature(-1), FirstFeature(sign=-1)):
        detector.name = "mine"
        save_detector(tmp_path / "mine", calibrated(detector, blobs))
        again = load_detector(tmp_path / "mine").detector
        assert (again.sign, again.name) == (-1, "mine")
    with pytest.raises(UserError, match=r"first cannot be saved: .* plain"):
        save_detector(tmp_path / "mine", calibrated(FirstFeature(torch.ones(1)), blobs))


@pytest.mark.parametrize("n", [19, 20, 100, 137])
@pytest.mark.parametrize("alpha", [0.05, 0.3, 0.0501, 1 / 20])
def test_p_values_verdicts_and_thresholds_by_counting(alpha, n):
    generator = torch.Generator().manual_seed(n)
    held_out, new = torch.randint(0, 40, (2, n), generator=generator).double()  # ties everywhere
    it = of_scores(held_out, alpha)
    p = [(1 + sum(h >= s for h in held_out.tolist())) / (n + 1) for s in new.tolist()]
    close(it.p_values(new), p)
    assert it.is_ood(new).tolist() == [value <= alpha for value in p]
    assert torch.equal(it.is_ood(new), new > it.threshold)


@pytest.mark.slow
def test_false_alarms_and_p_values_are_valid_on_exchangeable_scores():
    runs, n, m = 2000, 59, 20
    generator = torch.Generator().manual_seed(0)
    false_alarms, small = [], {0.05: [], 0.25: [], 0.5: []}
    for held_out, new in torch.randn(runs, 2, n, generator=generator, dtype=torch.float64):
        it = of_scores(held_out, ALPHA)
        false_alarms.append(it.is_ood(new[:m]).double().mean())
        for level, shares in small.items():
            shares.append((it.p_values(new[:m]) <= level + 1e-12).double().mean())
    for level, shares in small.items():  # uniform on {1, ..., n + 1} / (n + 1)
        shares = torch.stack(shares)
        assert abs(shares.mean() - level) < 4 * shares.std() / runs**0.5
    assert torch.equal(torch.stack(false_alarms), torch.stack(small[0.05]))


def test_another_rate_on_the_same_scores():
    it = of_scores(torch.arange(99), ALPHA)
    assert it.threshold == 94
    other = it.at(0.5)
    assert (it.threshold, other.threshold, other.alpha) == (94, 49, 0.5)


@pytest.mark.parametrize(
    ("alpha", "n", "message"),
    [
        (1.0, 9, "alpha=1.0: give a number below 1"),
        (0, 9, "alpha=0: give a number above 0"),
        (0.5, 0, "there are no held-out ID images"),
    ],
)
def test_impossible_rates(alpha, n, message):
    with pytest.raises(UserError, match=message):
        of_scores(torch.arange(n), alpha)


@pytest.mark.parametrize("alpha", [0.5, 0.3, 0.1, 0.05, 0.01, 1 / 3, 0.001])
def test_no_fewer_held_out_images_are_enough(alpha):
    n = least_held_out(alpha)
    assert of_scores(torch.arange(n), alpha).is_ood(torch.tensor([n + 1.0])).tolist() == [True]
    if n > 1:
        few = of_scores(torch.arange(n - 1), alpha)
        assert f"needs {n:,} ID images, there are {n - 1:,}" in few.shortage
        assert few.threshold == float("inf")
        assert not few.is_ood(torch.tensor([1e9])).any()


def test_another_backbone_is_refused():
    it = of_scores(torch.arange(99), ALPHA)
    it.check_backbone("a" * 64, "Resize(64)")
    with pytest.raises(UserError, match="weights aaaaaaaaaaaa, this one has bbbbbbbbbbbb"):
        it.check_backbone("b" * 64, "Resize(64)")
    with pytest.raises(UserError, match=r"transformed by Resize\(64\)"):
        it.check_backbone("a" * 64, "Resize(32)")


def rewritten(source, target, **changes):
    """The file with other entries in its description; None removes one."""
    with safe_open(source, framework="pt") as file:
        description = json.loads(file.metadata()["ood_lab_detector"]) | changes
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    kept = {key: value for key, value in description.items() if value is not None}
    save_file(tensors, target, metadata={"ood_lab_detector": json.dumps(kept)})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"class": "os.system"}, "holds a os.system, which is not known here"),
        ({"class": "ood_lab.common.errors.UserError"}, "which is not known here"),
        ({"class": "ood_lab.detectors.base.Detector"}, "which is not known here"),
        ({"class": None}, "is damaged"),
        ({"kwargs": {"depth": 3}}, "is damaged"),
        ({"alpha": None}, "is damaged"),
        ({"alpha": "high"}, "is damaged"),
        ({"format": 99}, "has format 99, this version reads 3"),
    ],
)
def test_a_wrong_description_is_one_message(changes, message, blobs, tmp_path):
    save_detector(tmp_path / "good", calibrated(FirstFeature(), blobs))
    rewritten(tmp_path / "good", tmp_path / "bad", **changes)
    with pytest.raises(UserError, match=message):
        load_detector(tmp_path / "bad")


def test_names_of_classes_are_not_needed():
    of = {"weights_sha256": "", "transform": ""}
    assert not CalibratedDetector.of(FirstFeature(), torch.arange(30), 0.05, **of).classes


def test_other_files_are_refused(blobs, tmp_path):
    save_detector(tmp_path / "good", calibrated(FirstFeature(), blobs))
    whole = (tmp_path / "good").read_bytes()
    wrong = {"short": whole[: len(whole) // 2], "empty": b"", "text": b"path,label\n" * 50}
    for name, content in wrong.items():
        (tmp_path / name).write_bytes(content)
    save_file({"weight": torch.ones(2)}, tmp_path / "foreign")
    for name in (*wrong, "foreign"):
        with pytest.raises(UserError, match=f"{name}' is not a detector file, or it is damaged"):
            load_detector(tmp_path / name)
    with pytest.raises(UserError, match="nowhere' does not exist"):
        load_detector(tmp_path / "nowhere")


def test_others_may_read_a_file_where_the_umask_lets_them(blobs, tmp_path):
    save_detector(tmp_path / "it", calibrated(FirstFeature(), blobs))
    (tmp_path / "touched").touch()
    assert (tmp_path / "it").stat().st_mode == (tmp_path / "touched").stat().st_mode


def test_a_file_that_cannot_be_written(blobs, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        save_detector(tmp_path / "taken" / "it", calibrated(FirstFeature(), blobs))
