"""Convert official checkpoints to qkv models and back; one file per group of architectures; never exported."""
