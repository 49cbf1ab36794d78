"""The command line: checks, composition, sweeps, staged experiments, output."""
