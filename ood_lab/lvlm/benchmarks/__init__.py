"""Published benchmarks: how each builds, words, scores and shows its questions."""
