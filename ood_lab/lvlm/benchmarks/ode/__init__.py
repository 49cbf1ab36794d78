"""ODE: open-set dynamic evaluation of hallucination (arXiv 2409.09318)."""
