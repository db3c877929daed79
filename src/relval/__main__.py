"""``python -m relval`` is the command ``relval``."""

from relval.cli import main

main()
