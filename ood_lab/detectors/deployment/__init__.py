"""Calibrated detectors, saved detectors, and ONNX files."""
