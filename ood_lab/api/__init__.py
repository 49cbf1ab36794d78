"""Detectors without a command line: arrays or a network in, results out (docs/how-to/python.md)."""

from ood_lab.api.evaluation import EvaluationResult as EvaluationResult
from ood_lab.api.evaluation import evaluate as evaluate
from ood_lab.api.feature_banks import extract_features as extract_features
from ood_lab.api.feature_banks import features_from_arrays as features_from_arrays
from ood_lab.api.onnx_export import export_onnx as export_onnx
from ood_lab.detectors import load_detector as load_detector
from ood_lab.models.image_tiles import Tiles as Tiles
