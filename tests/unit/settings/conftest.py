import pytest

from tests.unit.settings.support import EACH


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for _, setting in EACH:
        monkeypatch.delenv(setting.variable, raising=False)
    monkeypatch.delenv("OFFSETSTREAM_CONFIG", raising=False)
