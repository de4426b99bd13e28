"""`python -m Deeploy`: the command line."""

from Deeploy.cli import entry

if __name__ == "__main__":
    entry()
