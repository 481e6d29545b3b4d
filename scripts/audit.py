"""Ask whether a version of requirements.lock is known to be vulnerable: `make audit`.

pip-audit asks PyPI, or what its options name (`--vulnerability-service osv --osv-url URL`). Its exit code is 1 for
whatever is not clean, and 0 where nobody knew the packages; so its answer is read. Exit codes: 0 clean, 1 vulnerable,
2 wrong usage, 3 of some packages, or of all, the database could not be asked: nobody knows.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
CLEAN, VULNERABLE, WRONG_USAGE, NOT_ASKED = 0, 1, 2, 3
_SHOWN = 5


def main() -> int:
    """Audit a file of pinned requirements with hashes; nothing is resolved or installed."""
    parser = argparse.ArgumentParser(description="Ask whether a locked version is known to be vulnerable.")
    parser.add_argument("file", nargs="?", type=Path, default=ROOT / "requirements.lock")
    known, options = parser.parse_known_args()
    if not known.file.is_file():
        print(f"audit: there is no file {known.file}", file=sys.stderr)
        return WRONG_USAGE
    return tell(*ask(known.file, options))


def ask(file: Path, options: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Return what pip-audit says of each package, or nothing and why."""
    uv = [str(Path(sys.executable).parent / "uv"), "tool", "run", "--quiet", "--from", PIP_AUDIT]
    audit = ["pip-audit", "--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(
        [*uv, *audit, "--requirement", str(file), *options], capture_output=True, text=True, check=False
    )
    try:
        return json.loads(done.stdout)["dependencies"], f"{file} names no package"
    except ValueError:
        said = done.stderr.strip().splitlines() or ["it said nothing"]
        return [], said[-1]


def tell(packages: list[dict[str, Any]], why: str) -> int:
    """Print one line for each finding, then the sum; return the exit code."""
    if not packages:
        print(f"audit: not done, nobody knows: {why}", file=sys.stderr)
        return NOT_ASKED
    found = [(package, each) for package in packages for each in package.get("vulns", [])]
    for package, each in found:
        mended = ", ".join(each["fix_versions"]) or "no version yet"
        print(f"{package['name']} {package['version']}: {each['id']}, mended in {mended}")
    unknown = [package for package in packages if "skip_reason" in package]
    print(f"{len(packages) - len(unknown)} of {len(packages)} packages looked up, {len(found)} vulnerabilities.")
    if unknown:
        names = ", ".join(package["name"] for package in unknown[:_SHOWN]) + (", …" if len(unknown) > _SHOWN else "")
        print(f"audit: the database does not answer for {len(unknown)} packages ({names}), so nobody knows: "
              f"{unknown[0]['skip_reason']}", file=sys.stderr)  # fmt: skip
    return VULNERABLE if found else NOT_ASKED if unknown else CLEAN


if __name__ == "__main__":
    sys.exit(main())
