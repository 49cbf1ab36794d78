"""DataModules, and the steps that prepare their datasets."""
