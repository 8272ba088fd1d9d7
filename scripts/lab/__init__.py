"""The lab: programs that measure and prove the package. It is not installed, and nothing outside imports it."""
