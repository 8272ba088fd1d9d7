"""Divide own data into splits, and find rows that two splits share."""
