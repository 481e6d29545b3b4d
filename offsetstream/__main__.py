"""`python -m offsetstream`: the same as the command `offsetstream`."""

from offsetstream.cli.main import main

if __name__ == "__main__":
    main()
