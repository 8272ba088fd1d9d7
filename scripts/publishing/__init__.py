"""What it takes to hand a model to somebody without qkv: flattened code, the Hub folder, the card, the proof."""
