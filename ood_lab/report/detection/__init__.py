"""Pages and figures of runs that score detectors."""
