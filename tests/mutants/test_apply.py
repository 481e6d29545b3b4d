"""Every mutant can be written into the product as it is today."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.mutants.__main__ import ROOT, Mutant, read_mutants


@pytest.mark.parametrize("mutant", read_mutants(), ids=lambda mutant: mutant.name)
def test_a_mutant_applies(mutant: Mutant, tmp_path: Path) -> None:
    for change in mutant.changes:
        (tmp_path / change.file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / change.file, tmp_path / change.file)
    mutant.apply(tmp_path)
    for change in mutant.changes:
        assert (tmp_path / change.file).read_text("utf-8") != (ROOT / change.file).read_text("utf-8")


def test_a_mutant_whose_code_moved_says_so(tmp_path: Path) -> None:
    (tmp_path / "offsetstream" / "tables").mkdir(parents=True)
    mutant = next(each for each in read_mutants() if each.name == "lease-race")
    (tmp_path / mutant.changes[0].file).write_text("moved = True\n")
    with pytest.raises(ValueError, match=r"^lease-race: .* stands 0 times in .*lease\.py: write it anew$"):
        mutant.apply(tmp_path)
