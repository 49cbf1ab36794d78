"""Post-hoc detectors: ``fit(bank)``, ``score(bank)``, higher = more OOD."""

from ood_lab.detectors.adascale import AdaSCALEA, AdaSCALEL
from ood_lab.detectors.ash import ASH
from ood_lab.detectors.base import (
    Detector,
    DetectorRefusal,
    check_memory,
    checked_score,
    unserved,
    unsuited,
)
from ood_lab.detectors.cfood import CFOOD
from ood_lab.detectors.deployment.calibration import DEFAULT_ALPHA, CalibratedDetector, too_few
from ood_lab.detectors.deployment.detector_files import load_detector, save_detector
from ood_lab.detectors.deployment.onnx_export import cannot_export, save_onnx
from ood_lab.detectors.dice import DICE
from ood_lab.detectors.ebo import EBO
from ood_lab.detectors.entropy import Entropy
from ood_lab.detectors.fdbd import FDBD
from ood_lab.detectors.gen import GEN
from ood_lab.detectors.gmm import GMM
from ood_lab.detectors.grad_uncertainty import GradUncertainty
from ood_lab.detectors.gradnorm import GradNorm
from ood_lab.detectors.gram import Gram
from ood_lab.detectors.grood import GROOD
from ood_lab.detectors.iodin import IODIN
from ood_lab.detectors.joint_energy import JointEnergy
from ood_lab.detectors.klm import KLM
from ood_lab.detectors.knn import KNN
from ood_lab.detectors.lts import LTS
from ood_lab.detectors.mds import MDS
from ood_lab.detectors.mds_ensemble import MDSEnsemble
from ood_lab.detectors.mds_pp import MDSPP
from ood_lab.detectors.mls import MLS
from ood_lab.detectors.msp import MSP
from ood_lab.detectors.nac import NAC
from ood_lab.detectors.nci import NCI
from ood_lab.detectors.neco import NECO
from ood_lab.detectors.nnguide import NNGuide
from ood_lab.detectors.odin import ODIN
from ood_lab.detectors.openmax import OpenMax
from ood_lab.detectors.pnml import PNML
from ood_lab.detectors.rankfeat import RankFeat
from ood_lab.detectors.react import ReAct
from ood_lab.detectors.relation import Relation
from ood_lab.detectors.residual import Residual
from ood_lab.detectors.rmds import RMDS
from ood_lab.detectors.scale import SCALE
from ood_lab.detectors.she import SHE
from ood_lab.detectors.sum_prob import SumProb
from ood_lab.detectors.temp_scaling import TempScaling
from ood_lab.detectors.vim import ViM
from ood_lab.detectors.vra import VRA

__all__ = [
    "ASH",
    "CFOOD",
    "DEFAULT_ALPHA",
    "DICE",
    "EBO",
    "FDBD",
    "GEN",
    "GMM",
    "GROOD",
    "IODIN",
    "KLM",
    "KNN",
    "LTS",
    "MDS",
    "MDSPP",
    "MLS",
    "MSP",
    "NAC",
    "NCI",
    "NECO",
    "ODIN",
    "PNML",
    "RMDS",
    "SCALE",
    "SHE",
    "VRA",
    "AdaSCALEA",
    "AdaSCALEL",
    "CalibratedDetector",
    "Detector",
    "DetectorRefusal",
    "Entropy",
    "GradNorm",
    "GradUncertainty",
    "Gram",
    "JointEnergy",
    "MDSEnsemble",
    "NNGuide",
    "OpenMax",
    "RankFeat",
    "ReAct",
    "Relation",
    "Residual",
    "SumProb",
    "TempScaling",
    "ViM",
    "cannot_export",
    "check_memory",
    "checked_score",
    "load_detector",
    "save_detector",
    "save_onnx",
    "too_few",
    "unserved",
    "unsuited",
]
