"""Compare recurrent networks with the Transformer: measurements, claims and their page."""
