"""Check and fill settings by pydantic-settings, whose models are built from the declarations.

Import this module only where settings are made: the import takes longer than a look-up.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Annotated, Any, get_type_hints

from pydantic import BeforeValidator, Field, ValidationError, create_model
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from offsetstream.errors import UsageError
from offsetstream.settings.kinds import PAIRS, Kind
from offsetstream.settings.schema import Setting, Settings, settings_of

_WORDS = {"missing": "give a value, it has no default", "extra_forbidden": "there is no such setting"}
_models: dict[type[Settings], type[BaseSettings]] = {}


class _Given(BaseSettings):
    """Settings that read only their arguments, not the environment."""

    model_config = SettingsConfigDict(extra="forbid", allow_inf_nan=True)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - pydantic-settings' signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def checked(declared: type[Settings], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values, each converted to its type. Raise UsageError that names the setting with a bad value."""
    return _values(_model(declared), given)


def filled(declared: type[Settings], given: Mapping[str, Any], file: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values: `given` wins over the environment, which wins over `file`. Errors are those of `checked`."""
    return checked(declared, {**file, **_environment(declared), **given})


def _environment(declared: type[Settings]) -> dict[str, Any]:
    """Return the settings from environment variables; a list is split at spaces, as click does."""
    values: dict[str, Any] = {}
    for each in settings_of(declared):
        value = os.environ.get(each.variable)
        if value:
            values[each.name] = value.split() if each.is_list or each.option.kind is PAIRS else value
    return values


def _model(declared: type[Settings]) -> type[BaseSettings]:
    """Return the model of a declaration, built once."""
    if declared not in _models:
        _models[declared] = _build_model(declared)
    return _models[declared]


def _build_model(declared: type[Settings]) -> type[BaseSettings]:
    hints = get_type_hints(declared, include_extras=True)
    fields: dict[str, Any] = {}
    for each in dataclasses.fields(declared):
        default = each.default if each.default is not dataclasses.MISSING else ...
        if each.default_factory is not dataclasses.MISSING:
            default = Field(default_factory=each.default_factory)
        fields[each.name] = (hints[each.name], default)
    for setting in settings_of(declared):
        fields[setting.name] = (Annotated[setting.type, *_checks(setting)], fields[setting.name][1])
    return create_model(declared.__name__, __base__=_Given, **fields)


def _checks(setting: Setting) -> list[Any]:
    option, kind = setting.option, setting.option.kind
    field = Field(ge=option.minimum, description=option.help)
    if kind is None:
        return [field]
    if setting.is_list:
        return [field, BeforeValidator(lambda values: _each(kind, values))]
    return [field, BeforeValidator(lambda value: None if value is None else kind.read(value))]


def _each(kind: Kind, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise ValueError(f"{values!r} is not a list")  # noqa: TRY004 - pydantic reports only these
    return tuple(map(kind.read, values))


def _values(model: type[BaseSettings], given: Mapping[str, Any]) -> dict[str, Any]:
    try:
        settings = model(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = ".".join(map(str, first["loc"]))
        reason = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        raise UsageError(f"the setting {name}: {_WORDS.get(first['type'], reason)}") from None
    return {name: getattr(settings, name) for name in type(settings).model_fields}
