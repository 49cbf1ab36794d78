"""Detectors on new images: calibration, thresholds and the table of predictions."""
