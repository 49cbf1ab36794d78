"""Detectors without a command line: arrays or a network in, results out (docs/how-to/python.md)."""

from ood_lab.api.evaluation import EvaluationResult, evaluate
from ood_lab.api.feature_banks import extract_features, features_from_arrays
from ood_lab.api.onnx_export import export_onnx
from ood_lab.detectors import load_detector

__all__ = [
    "EvaluationResult",
    "evaluate",
    "export_onnx",
    "extract_features",
    "features_from_arrays",
    "load_detector",
]
