"""Conversion of checkpoint folders between qkv and stock transformers, and the certificate that both are one model."""
