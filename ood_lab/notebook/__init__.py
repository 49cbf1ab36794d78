"""Detectors without a command line: arrays or a network in, results out (docs/python.md)."""

from ood_lab.detectors import load_detector
from ood_lab.notebook.banks import bank_from_arrays, bank_from_module
from ood_lab.notebook.evaluate import Outcome, evaluate

__all__ = ["Outcome", "bank_from_arrays", "bank_from_module", "evaluate", "load_detector"]
