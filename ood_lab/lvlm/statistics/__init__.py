"""The statistics of OODBench's appendices B and C (arXiv 2602.18094), as functions of arrays.

Pairs of questions are the unit of every resample: the two answers to a pair are not independent.
"""
