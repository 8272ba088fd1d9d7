"""Programs that measure and prove the package: not installed, and imported by nothing outside."""
