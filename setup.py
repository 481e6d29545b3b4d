"""The README as package indexes show it: its links lead to the repository, as it was at this version."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
SOURCE = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["urls"]["Source"]
VERSION = re.findall(r'^__version__ = "(.+?)"', (ROOT / "offsetstream" / "version.py").read_text("utf-8"), re.M)[0]
AT = "main" if "dev" in VERSION else f"v{VERSION}"


def readme() -> str:
    """Return README.md with each link to a file of the repository made absolute: a picture's to the file itself."""
    text = (ROOT / "README.md").read_text("utf-8")
    text = re.sub(r"(!\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{SOURCE}/raw/{AT}/", text)
    return re.sub(r"((?<!!)\[[^\]]*\]\()(?!https?:|#)", rf"\g<1>{SOURCE}/blob/{AT}/", text)


setup(long_description=readme(), long_description_content_type="text/markdown")
