"""ORIC: object recognition in incongruous context (positives by a judge, negatives by a CLIP)."""
