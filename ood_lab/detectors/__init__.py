"""Post-hoc detectors: ``fit(bank)``, ``score(bank)``, higher = more OOD."""

from ood_lab.detectors.ash import ASH
from ood_lab.detectors.base import Detector, DetectorRefusal, check_memory, checked_score
from ood_lab.detectors.calibration import CalibratedDetector, Rule
from ood_lab.detectors.dice import DICE
from ood_lab.detectors.ebo import EBO
from ood_lab.detectors.gradnorm import GradNorm
from ood_lab.detectors.gram import Gram
from ood_lab.detectors.klm import KLM
from ood_lab.detectors.knn import KNN
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.mls import MLS
from ood_lab.detectors.msp import MSP
from ood_lab.detectors.odin import ODIN
from ood_lab.detectors.openmax import OpenMax
from ood_lab.detectors.rankfeat import RankFeat
from ood_lab.detectors.react import ReAct
from ood_lab.detectors.saved import load_detector, save_detector
from ood_lab.detectors.vim import ViM

__all__ = [
    "ASH",
    "DICE",
    "EBO",
    "KLM",
    "KNN",
    "MDS",
    "MLS",
    "MSP",
    "ODIN",
    "CalibratedDetector",
    "Detector",
    "DetectorRefusal",
    "GradNorm",
    "Gram",
    "OpenMax",
    "RankFeat",
    "ReAct",
    "Rule",
    "ViM",
    "check_memory",
    "checked_score",
    "load_detector",
    "save_detector",
]
