"""Take docs/images/report.png: the page of some groups of the demo, from the tables of `make demo`."""

import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from testkit.browser import Visit, chromium  # noqa: E402 - testkit is not installed

DEMO, PICTURE = ROOT / "demo-tables", ROOT / "docs" / "images" / "report.png"
GROUPS = ("loyalty-points", "fraud-scoring", "cart-reminder", "billing", "recommendations", "warehouse")
WIDTH, HEIGHT = 1000, 1812  # pixels


def main() -> None:
    """Take a picture of the upper part of the page, with all charts drawn."""
    begin, end = DEMO / ".offsetstream-demo", DEMO / "report.html"
    if not end.is_file():
        sys.exit(f"There is no {end}: run `make demo` first")
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        page = Path(folder) / "report.html"
        period = ["--since", _written(begin), "--until", _written(end)]
        groups = [f"--group={group}" for group in GROUPS]
        options = ["--file", str(page), "--tables", str(DEMO / "tables"), *period, *groups]
        subprocess.run([sys.executable, "-m", "offsetstream", "report", *options], check=True)
        visit = Visit(browser, width=WIDTH)
        visit.go(page)
        visit.draw()
        PICTURE.parent.mkdir(exist_ok=True)
        visit.page.screenshot(path=PICTURE, clip={"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT}, full_page=True)
        visit.close()


def _written(file: Path) -> str:
    return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")


if __name__ == "__main__":
    main()
