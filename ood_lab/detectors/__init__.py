"""Post-hoc detectors: ``fit(bank)``, ``score(bank)``, higher = more OOD.

The classes of all files of this folder are public here: a new detector is a file and its YAML.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from ood_lab.detectors.base import Detector as Detector
from ood_lab.detectors.base import DetectorRefusal as DetectorRefusal
from ood_lab.detectors.base import check_memory as check_memory
from ood_lab.detectors.base import checked_score as checked_score
from ood_lab.detectors.base import fit_detector as fit_detector
from ood_lab.detectors.base import named as named
from ood_lab.detectors.base import unserved as unserved
from ood_lab.detectors.base import unsuited as unsuited
from ood_lab.detectors.deployment.calibration import DEFAULT_ALPHA as DEFAULT_ALPHA
from ood_lab.detectors.deployment.calibration import CalibratedDetector as CalibratedDetector
from ood_lab.detectors.deployment.calibration import too_few as too_few
from ood_lab.detectors.deployment.detector_files import load_detector as load_detector
from ood_lab.detectors.deployment.detector_files import save_detector as save_detector
from ood_lab.detectors.deployment.onnx_export import cannot_export as cannot_export
from ood_lab.detectors.deployment.onnx_export import require_onnx as require_onnx
from ood_lab.detectors.deployment.onnx_export import save_onnx as save_onnx

if TYPE_CHECKING:

    def __getattr__(name: str) -> Any: ...


for _file in iter_modules(__path__, f"{__name__}."):
    for _name, _class in vars(import_module(_file.name)).items():
        if isinstance(_class, type) and issubclass(_class, Detector):
            globals()[_name] = _class
