"""Runs that were trained or are being trained, read from their folders and compared."""
