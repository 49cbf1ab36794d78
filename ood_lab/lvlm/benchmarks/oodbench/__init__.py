"""OODBench: does a model see what image-text models overlook? (arXiv 2602.18094)."""
