"""Data made or shipped with the package: digits, drawings, speech, melodies, shapes, documentation, dates."""
