"""How the results of question benchmarks are shown."""
