"""Logins: Kafka's SASL properties for librdkafka, by password, by token, or at Amazon MSK by IAM.

For MSK, Java clients use Amazon's plugin and librdkafka uses tokens of Amazon's signer. For a broker both are the same:
a request that is signed with AWS credentials and valid for 15 minutes.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from offsetstream.cluster.stores import trusted_certificates
from offsetstream.errors import UnauthorisedError, UsageError

MSK_IAM = "AWS_MSK_IAM"
CLIENT_HANDLER = "sasl.client.callback.handler.class"
_PLUGIN = "software.amazon.msk:aws-msk-iam-auth:2.3.5"
_IAM_HANDLER = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
# Options of the plugin's login module that the signer supports, too. The harmless ones do not affect the identity.
_PROFILE, _ROLE, _SESSION = "awsProfileName", "awsRoleArn", "awsRoleSessionName"
_HARMLESS = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_FRESH_SECONDS = 300.0  # librdkafka requests a new token when a fifth of its lifetime is left: three minutes

Token = tuple[str, float]  # the token, and its expiration in seconds since 1970

_KAFKA = "org.apache.kafka.common.security"
# The class names may have a prefix: Databricks renames these classes.
_MODULES = {
    "PLAIN": f"{_KAFKA}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_KAFKA}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_KAFKA}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule",
    MSK_IAM: "software.amazon.msk.auth.iam.IAMLoginModule",
}
_TOKEN_URL = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105 - the name of a property
_HANDLER = "sasl.login.callback.handler.class"
_FROM_ENDPOINT = ".OAuthBearerLoginCallbackHandler"
_UNSECURED = ".OAuthBearerUnsecuredLoginCallbackHandler"
_CREDENTIALS = {"clientId": "sasl.oauthbearer.client.id", "clientSecret": "sasl.oauthbearer.client.secret"}
_EXTENSION = "extension_"
_UNSECURED_OPTIONS = {
    "unsecuredLoginStringClaim_sub": "principal",
    "unsecuredLoginLifetimeSeconds": "lifeSeconds",
    "unsecuredLoginPrincipalClaimName": "principalClaimName",
    "unsecuredLoginScopeClaimName": "scopeClaimName",
}
# Words, quoted texts and escapes as in Java's StreamTokenizer, which JaasConfig uses.
_WORD = r"[A-Za-z_$\u00a0-\U0010ffff-][\w.$\u00a0-\U0010ffff-]*+"
_OPTION = re.compile(rf"""\s*({_WORD})\s*=\s*(?:"((?:[^"\\\r\n]|\\.)*+)"|'((?:[^'\\\r\n]|\\.)*+)'|({_WORD}))""")
_MODULE = re.compile(rf"\s*({_WORD})\s+(?:required|requisite|sufficient|optional)\b", re.IGNORECASE)
_END = re.compile(r"\s*;\s*")
_ESCAPE = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)")
_ESCAPES = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def sasl_config(properties: Mapping[str, str], bootstrap_server: str) -> dict[str, Any]:
    """Return the mechanism and the credentials for librdkafka.

    Raises UsageError, without secrets in it, if librdkafka does not support the properties or Kafka's Java client would
    reject them (Spark needs seconds to find out). Raises what `_iam` raises.
    """
    mechanism = properties.get("sasl.mechanism", "GSSAPI")
    if mechanism not in _MODULES:
        raise UsageError(
            f"sasl.mechanism is {mechanism} (Kafka's default is GSSAPI): set it to one of {', '.join(_MODULES)}"
        )
    if "sasl.jaas.config" not in properties:
        raise UsageError("sasl.jaas.config is missing: put the login into the client properties")
    login = parse_login(properties["sasl.jaas.config"])
    if not login.module.endswith(_MODULES[mechanism]):
        raise UsageError(
            f"sasl.jaas.config has the login module {login.module}, but sasl.mechanism={mechanism} needs "
            f"{_MODULES[mechanism]}"
        )
    if mechanism == MSK_IAM:
        return _iam(properties, login.options, bootstrap_server)
    translate = _token if mechanism == "OAUTHBEARER" else _password
    return {"sasl.mechanism": mechanism, **translate(properties, login)}


def _password(properties: Mapping[str, str], login: Login) -> dict[str, str]:
    if _HANDLER in properties:
        raise UsageError(
            f"{_HANDLER} only works with OAUTHBEARER, because librdkafka cannot run Java classes: remove it"
        )
    if login.options.get("tokenauth", "").lower() == "true":
        raise UsageError(
            "sasl.jaas.config has tokenauth, but librdkafka does not support delegation tokens: log in as a user"
        )
    missing = [name for name in ("username", "password") if name not in login.options]
    if missing:
        raise UsageError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    return {"sasl.username": login.options["username"], "sasl.password": login.options["password"]}


def _token(properties: Mapping[str, str], login: Login) -> dict[str, str]:
    handler = properties.get(_HANDLER, _UNSECURED)
    if handler.endswith(_FROM_ENDPOINT):
        return _from_endpoint(properties, login.options)
    if not handler.endswith(_UNSECURED):
        raise UsageError(f"{_HANDLER} is {handler}, which librdkafka cannot run: use Kafka's own{_FROM_ENDPOINT}")
    if _TOKEN_URL in properties:
        handler = f"{_KAFKA}.oauthbearer{_FROM_ENDPOINT}"
        raise UsageError(f"{_TOKEN_URL} also needs {_HANDLER}={handler}")
    return _unsecured(login.options)


def _from_endpoint(properties: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration to get tokens by client credentials.

    The endpoint's certificates are options of the login module.
    """
    url = properties.get(_TOKEN_URL, "")
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"{_TOKEN_URL} must be an http or https URL")
    missing = [name for name in _CREDENTIALS if name not in options]
    if missing:
        raise UsageError(f"sasl.jaas.config has no {' and no '.join(missing)}")
    config = {"sasl.oauthbearer.method": "oidc", _TOKEN_URL: url}
    config |= {theirs: options[ours] for ours, theirs in _CREDENTIALS.items()}
    if "scope" in options:
        config["sasl.oauthbearer.scope"] = options["scope"]
    if "sasl.oauthbearer.sub.claim.name" in properties:
        config["sasl.oauthbearer.sub.claim.name"] = properties["sasl.oauthbearer.sub.claim.name"]
    extensions = {name: value for name, value in options.items() if name.startswith(_EXTENSION)}
    if extensions:
        pairs = (f"{name.removeprefix(_EXTENSION)}={value}" for name, value in extensions.items())
        config["sasl.oauthbearer.extensions"] = ",".join(pairs)
    certificates = trusted_certificates(options)
    if certificates is not None:
        config["https.ca.pem"] = certificates
    _reject_others(options, {*_CREDENTIALS, *extensions, "scope"}, "ssl.truststore.")
    return config


def _unsecured(options: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration for Kafka's unsecured tokens, which only test brokers accept."""
    if "unsecuredLoginStringClaim_sub" not in options:
        raise UsageError("sasl.jaas.config has no unsecuredLoginStringClaim_sub, which names the user")
    _reject_others(options, set(_UNSECURED_OPTIONS))
    if any(re.search(r'[\s"]', value) for value in options.values()):
        raise UsageError("a value of sasl.jaas.config has a space or a quote, which librdkafka does not allow there")
    words = " ".join(f"{_UNSECURED_OPTIONS[name]}={value}" for name, value in options.items())
    return {"enable.sasl.oauthbearer.unsecure.jwt": "true", "sasl.oauthbearer.config": words}


def _reject_others(options: Mapping[str, str], known: set[str], known_prefix: str = "\0") -> None:
    others = [name for name in options if name not in known and not name.startswith(known_prefix)]
    if others:
        raise UsageError(f"librdkafka does not support {others[0]} in sasl.jaas.config: remove it")


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


def _iam(properties: Mapping[str, str], options: Mapping[str, str], bootstrap_server: str) -> dict[str, Any]:
    """Return librdkafka's configuration for a login by tokens. `options` are those of the plugin's login module.

    Raises UsageError for an option that the signer lacks, UnauthorisedError without AWS credentials, and
    ModuleNotFoundError without the signer.
    """
    if not properties.get(CLIENT_HANDLER, "").endswith(_IAM_HANDLER):
        raise UsageError(f"sasl.mechanism={MSK_IAM} needs {CLIENT_HANDLER}={_IAM_HANDLER}")
    others = options.keys() - {_PROFILE, _ROLE, _SESSION} - _HARMLESS
    if others:
        raise UsageError(f"{min(others)} in sasl.jaas.config is not supported by Amazon's signer: remove it")
    signer = Signer(_region(bootstrap_server), options)
    signer()  # fail now without credentials: librdkafka would wait ten seconds and hide the reason
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": signer}


def _region(bootstrap_server: str) -> str:
    """Return the brokers' AWS region, like the plugin: from their host names, else from the environment."""
    named = _HOST.search(bootstrap_server)
    found = named[1] if named else next(filter(None, map(os.environ.get, _REGIONS)), None)
    if found is None:
        raise UsageError(f"{bootstrap_server} does not contain an AWS region: set AWS_REGION to the cluster's region")
    return found


class Signer:
    """Amazon's signer, as a callback of librdkafka, which calls it when the last token is about to expire."""

    def __init__(self, region: str, options: Mapping[str, str]) -> None:
        self._region = region
        self._options = options
        self._last: Token = ("", 0.0)

    def __call__(self, _config: str | None = None) -> Token:
        """Return a token and its expiration. Raises UnauthorisedError without AWS credentials."""
        if self._last[1] - time.time() < _FRESH_SECONDS:
            self._last = self._sign()
        return self._last

    def _sign(self) -> Token:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider  # noqa: PLC0415 - of the extra msk
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - comes with it

        try:
            if _ROLE in self._options:
                session = {"sts_session_name": self._options[_SESSION]} if _SESSION in self._options else {}
                signed = Provider.generate_auth_token_from_role_arn(self._region, self._options[_ROLE], **session)
            elif _PROFILE in self._options:
                signed = Provider.generate_auth_token_from_profile(self._region, self._options[_PROFILE])
            else:
                signed = Provider.generate_auth_token(self._region)
        except AttributeError as error:  # the signer raises it without credentials
            raise UnauthorisedError(
                "no AWS credentials for MSK: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
                "or run with an attached IAM role"
            ) from error
        except (BotoCoreError, ClientError, ValueError) as error:
            raise UnauthorisedError(f"cannot get AWS credentials for MSK: {error}") from error
        token, expires_at_ms = signed
        return token, expires_at_ms / 1000


def java_plugins(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Maven coordinates of the plugins that Java clients need for these client properties."""
    return (_PLUGIN,) if properties.get("sasl.mechanism") == MSK_IAM else ()
