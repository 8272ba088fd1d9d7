"""Publish models: the model card, the exported code, the Hub, and the integrity of what was published."""
