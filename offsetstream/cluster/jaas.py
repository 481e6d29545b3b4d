"""Parse Kafka's `sasl.jaas.config`: one login module with its options, like Kafka's JaasConfig."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from offsetstream.errors import UsageError

# Words, quoted texts and escapes as in Java's StreamTokenizer, which JaasConfig uses.
_WORD = r"[A-Za-z_$\u00a0-\U0010ffff-][\w.$\u00a0-\U0010ffff-]*+"
_OPTION = re.compile(rf"""\s*({_WORD})\s*=\s*(?:"((?:[^"\\\r\n]|\\.)*+)"|'((?:[^'\\\r\n]|\\.)*+)'|({_WORD}))""")
_MODULE = re.compile(rf"\s*({_WORD})\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_END = re.compile(r"\s*;\s*")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


@dataclass(frozen=True)
class Login:
    """The class name of a login module, and its options. The options hold secrets and are never printed."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_login(jaas: str) -> Login:
    """Return the login of a `sasl.jaas.config`. Raises UsageError for an invalid one, without quoting it."""
    module = _MODULE.match(jaas)
    if module is None:
        raise _malformed("start it with the class of the login module and the word required")
    options: dict[str, str] = {}
    at = module.end()
    while option := _OPTION.match(jaas, at):
        name, double, single, word = option.groups()
        options[name] = word if word is not None else _unescape(double if double is not None else single)
        at = option.end()
    if _END.fullmatch(jaas, at) is None:
        raise _malformed(f'the text after {len(options)} options is not name="value", or the last semicolon is missing')
    return Login(module[1], options)


def _malformed(advice: str) -> UsageError:
    return UsageError(
        f"sasl.jaas.config of the client properties is not one login module with its options: {advice} "
        '(example: org.apache.kafka.common.security.plain.PlainLoginModule required username="…" password="…";)'
    )


def _unescape(text: str) -> str:
    return _ESCAPE.sub(lambda found: _escaped(found[1]), text)


def _escaped(code: str) -> str:
    return chr(int(code, 8)) if code.isdigit() and code[0] < "8" else _ESCAPES.get(code, code)
