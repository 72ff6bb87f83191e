"""`python -m nanobot`: the same program as the `nanobot` command."""

from nanobot.cli.main import main

if __name__ == "__main__":
    main()
