"""`python -m guardmark`: the command, where its script is not on the path."""

from guardmark.cli import main

if __name__ == "__main__":
    main()
