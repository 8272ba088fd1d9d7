"""Structures of chains: which of their residues pair."""
