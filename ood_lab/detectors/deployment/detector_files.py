"""A calibrated detector as one file, without pickle.

A safetensors file: ``id_scores``, where images belong together ``id_groups``, ``fitted.<name>``
for every tensor of ``Detector.fitted``, and in the metadata, one JSON text with the class of the
detector, its constructor's arguments, the false alarm rate or the given threshold, and what the
features came from.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ood_lab.common.errors import UserError, reported_as
from ood_lab.common.files import StrPath
from ood_lab.common.tensor_file import TensorFile
from ood_lab.detectors.base import Detector
from ood_lab.detectors.deployment.calibration import CalibratedDetector

FILE = TensorFile(
    kind="detector file",
    key="ood_lab_detector",
    format=3,
    source="task=predict",
    remedy="fit and save the detector again",
)
_FITTED = "fitted."
#: Plain attributes of a calibrated detector.
_RULE = (
    "alpha",
    "given_threshold",
    "pixel_range",
    "calibration",
    "classes",
    "weights_sha256",
    "transform",
)


def save_detector(path: StrPath, calibrated: CalibratedDetector) -> None:
    """Writes the file, whole or not at all.

    Raises:
        UserError: a constructor's argument is not a plain value, or the file cannot be written.
    """
    place, detector = Path(path), calibrated.detector
    description = {
        "class": _qualified(type(detector)),
        "settings": detector.settings,
        "name": detector.name,
        "used": dict(detector.used),
        "chosen": detector.chosen,
        "network": detector.network,
    } | {name: getattr(calibrated, name) for name in _RULE}
    tensors = calibrated.id_tensors | {
        _FITTED + name: value for name, value in detector.fitted.items()
    }
    problem = (
        f"detector {detector.name} cannot be saved: {{reason}}; give its constructor plain "
        "numbers, texts and lists"
    )
    with reported_as(problem, TypeError):
        FILE.write(place, tensors, description)


def load_detector(path: StrPath) -> CalibratedDetector:
    """Reads a file of :func:`save_detector`; nothing named in the file is imported.

    The class must be one of this package, or a subclass of :class:`Detector` that the program
    has already imported.

    Raises:
        UserError: no such file, another kind of file, a damaged one, or an unknown class.
    """
    place = Path(path)
    description, tensors = FILE.read(place)
    with FILE.whole(place):
        detector = _build(description, place)
        detector.fitted = {
            name.removeprefix(_FITTED): value
            for name, value in tensors.items()
            if name.startswith(_FITTED)
        }
        detector.network = description["network"]
        detector.used, detector.chosen = description["used"], description["chosen"]
        rule = {name: description[name] for name in _RULE}
        if rule["pixel_range"]:
            rule["pixel_range"] = tuple(rule["pixel_range"])
        scores, groups = tensors["id_scores"], tensors.get("id_groups")
        return CalibratedDetector(detector, scores, id_groups=groups, **rule)


def _build(description: dict[str, Any], place: Path) -> Detector:
    classes = {_qualified(cls): cls for cls in _subclasses(Detector)}  # type: ignore[type-abstract]
    wanted = description["class"]
    if wanted not in classes:
        raise UserError(
            f"detector file '{place}' holds a {wanted}, which is not known here: import that "
            "class first (choose its YAML with detector=[...])"
        )
    detector = classes[wanted](**description["settings"])
    detector.name = description["name"]
    return detector


def _subclasses(cls: type[Detector]) -> Iterator[type[Detector]]:
    for subclass in cls.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


def _qualified(cls: type) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"
