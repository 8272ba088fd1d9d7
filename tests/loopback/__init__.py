"""A Hub on loopback for tests: it speaks the Hub's HTTP API as the real clients use it, and fails when told to."""
