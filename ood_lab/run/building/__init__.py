"""The objects of a configuration, built and checked."""
