"""The version. pyproject.toml reads it from here, so that a tree that is not installed knows it, too."""

__version__ = "1.0.0rc1.dev0"
