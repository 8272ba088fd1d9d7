"""`python -m loopback --root FOLDER`: serve until the parent process is gone."""

from loopback.server import main

main()
