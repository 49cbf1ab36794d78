"""The engine of question benchmarks: what a benchmark is, and the stages that all go through."""
