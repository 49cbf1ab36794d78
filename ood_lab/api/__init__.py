"""Detectors without a command line: arrays or a network in, results out (docs/python.md)."""

from ood_lab.detectors import load_detector
from ood_lab.notebook.banks import bank_from_arrays, bank_from_module
from ood_lab.notebook.evaluate import Outcome, evaluate
from ood_lab.notebook.export import export_onnx

__all__ = [
    "Outcome",
    "bank_from_arrays",
    "bank_from_module",
    "evaluate",
    "export_onnx",
    "load_detector",
]
