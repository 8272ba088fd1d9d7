"""Sound in files: what pipelines are given where neither ffmpeg nor torchaudio is installed."""
