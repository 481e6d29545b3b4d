"""Kafka's `sasl.jaas.config`: one login module with its options, as Kafka's JaasConfig reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offsetstream.errors import UsageError

# Words, quoted texts and escapes as Java's StreamTokenizer reads them, JaasConfig being built on it.
_WORD = r"[A-Za-z_$\u00a0-\U0010ffff-][\w.$\u00a0-\U0010ffff-]*+"
_OPTION = re.compile(rf"""\s*({_WORD})\s*=\s*(?:"((?:[^"\\\r\n]|\\.)*+)"|'((?:[^'\\\r\n]|\\.)*+)'|({_WORD}))""")
_MODULE = re.compile(rf"\s*({_WORD})\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_END = re.compile(r"\s*;\s*")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class Login:
    """A login module, by the name of its class, and its options; these hold secrets and are never printed."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_login(jaas: str) -> Login:
    """Return the login of a `sasl.jaas.config`; UsageError, which quotes nothing of it, where it is none."""
    module = _MODULE.match(jaas)
    if module is None:
        raise _malformed("begin it with the class of the login module and the word required")
    options: dict[str, str] = {}
    at = module.end()
    while option := _OPTION.match(jaas, at):
        name, double, single, word = option.groups()
        options[name] = word if word is not None else _unescape(double if double is not None else single)
        at = option.end()
    if _END.fullmatch(jaas, at) is None:
        raise _malformed(f'what follows {len(options)} options is no name="value", or the last semicolon is missing')
    return Login(module[1], options)


def _malformed(what: str) -> UsageError:
    return UsageError(
        f"sasl.jaas.config of the client properties is not one login module with its options: {what} "
        '(example: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";)'
    )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _escaped(found[1]), text)


def _escaped(code: str) -> str:
    return chr(int(code, 8)) if code.isdigit() and code[0] < "8" else _ESCAPES.get(code, code)
