"""What every folder may use: files written whole, tables on screen, words understood."""
