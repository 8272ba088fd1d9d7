"""Manifest and certificate of a published model, and their verification."""
