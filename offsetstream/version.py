"""The version, in one place: pyproject.toml reads it here, so that a bare tree knows it too."""

__version__ = "1.0.0rc1.dev0"
