"""How ORIC's questions are made."""
