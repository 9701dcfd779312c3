"""python -m webhooks: the command line."""

from webhooks.cli import main

main()
