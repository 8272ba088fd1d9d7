"""Recurrent encoder-decoders: cells, layers, attention decoders and the cache of states."""
