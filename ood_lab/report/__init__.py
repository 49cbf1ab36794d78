"""Tables, figures and the one-page report of a run, from only its tables."""
