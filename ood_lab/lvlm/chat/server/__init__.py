"""What it takes to ask a server: connection, pace, costs, batches, probabilities of tokens."""
