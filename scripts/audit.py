"""Look up known vulnerabilities of the versions in requirements.lock, and of jars: `make audit`.

pip-audit asks PyPI, or OSV (`--vulnerability-service osv`, `--osv-url URL`). Its exit code does not tell vulnerable
packages from other failures, and is 0 for packages that no database knows; so this script reads its JSON. For jars,
`audit_jars.py` asks OSV at the same URL. Exit codes: 0 clean, 1 vulnerable, 2 wrong usage, 3 unknown: no database
answered for some packages.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import audit_jars

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"
CLEAN, VULNERABLE, WRONG_USAGE, NOT_ASKED = 0, 1, 2, 3
_SHOWN = 5


def main() -> int:
    """Audit the lock and all jars, or the given files. It resolves and installs nothing."""
    parser = argparse.ArgumentParser(description="Look up known vulnerabilities of locked versions and jars.")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE",
                        help="requirements with hashes, or jars [default: requirements.lock, and all jars that we "
                        "run or ship]")  # fmt: skip
    parser.add_argument(
        "--vulnerability-service", choices=("pypi", "osv"), default="pypi", help="for packages [%(default)s]"
    )
    parser.add_argument("--osv-url", default=audit_jars.OSV_URL, help="address of OSV [%(default)s]")
    parser.add_argument("--known", action="store_true", help="also print each known finding in a jar")
    given = parser.parse_args()
    missing = [str(file) for file in given.files if not file.is_file()]
    if missing:
        print(f"audit: there is no file {', '.join(missing)}", file=sys.stderr)
        return WRONG_USAGE
    options = ["--vulnerability-service", given.vulnerability_service, "--osv-url", given.osv_url]
    jars = [file for file in given.files if file.suffix == ".jar"]
    locks = [file for file in given.files if file not in jars] if given.files else [ROOT / "requirements.lock"]
    codes = {tell(*ask(file, options)) for file in locks}
    if jars or not given.files:
        codes.add(audit_jars.audit(jars, given.osv_url, every=given.known))
    return VULNERABLE if VULNERABLE in codes else max(codes)


def ask(file: Path, options: list[str]) -> tuple[list[dict[str, Any]], str]:
    """Return pip-audit's result for each package, or an empty list and the reason."""
    uv = [str(Path(sys.executable).parent / "uv"), "tool", "run", "--quiet", "--from", PIP_AUDIT]
    audit = ["pip-audit", "--disable-pip", "--require-hashes", "--format", "json", "--progress-spinner", "off"]
    done = subprocess.run(
        [*uv, *audit, "--requirement", str(file), *options], capture_output=True, text=True, check=False
    )
    try:
        return json.loads(done.stdout)["dependencies"], f"{file} names no package"
    except ValueError:
        errors = done.stderr.strip().splitlines() or ["pip-audit printed nothing"]
        return [], errors[-1]


def tell(packages: list[dict[str, Any]], why: str) -> int:
    """Print one line for each finding, then the totals. Return the exit code."""
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
