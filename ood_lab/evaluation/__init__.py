"""From feature banks to results: fitted detectors, scores, tables, tuned settings, predictions."""
