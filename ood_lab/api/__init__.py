"""Detectors without a command line: arrays or a network in, results out (docs/python.md)."""

from ood_lab.api.evaluation import EvaluationResult, evaluate
from ood_lab.api.feature_banks import bank_from_arrays, bank_from_module
from ood_lab.api.onnx_export import export_onnx
from ood_lab.detectors import load_detector

__all__ = [
    "EvaluationResult",
    "bank_from_arrays",
    "bank_from_module",
    "evaluate",
    "export_onnx",
    "load_detector",
]
