"""POPE (arXiv 2305.10355): is an object there that is not, chosen at random or to be tempting?"""
