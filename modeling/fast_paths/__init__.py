"""Fast paths: the numbers of the plain path with less work, each equal to it by test; read the plain path first."""
