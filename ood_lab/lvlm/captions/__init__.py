"""Hallucination in captions and in answers about the same images, by AMBER's rules."""
