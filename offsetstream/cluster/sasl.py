"""Translate Kafka's SASL properties to librdkafka's configuration."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from offsetstream.cluster import msk
from offsetstream.cluster.jaas import Login, parse_login
from offsetstream.cluster.stores import trusted_certificates
from offsetstream.errors import UsageError

_KAFKA = "org.apache.kafka.common.security"
# The class names may have a prefix: Databricks renames these classes.
_MODULES = {
    "PLAIN": f"{_KAFKA}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_KAFKA}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_KAFKA}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_KAFKA}.oauthbearer.OAuthBearerLoginModule",
    msk.MECHANISM: "software.amazon.msk.auth.iam.IAMLoginModule",
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


def sasl_config(properties: Mapping[str, str], bootstrap_server: str) -> dict[str, Any]:
    """Return the mechanism and the credentials for librdkafka.

    Raises UsageError, without secrets in it, if librdkafka does not support the properties or Kafka's Java client would
    reject them (Spark needs seconds to find out). Raises what `msk.iam_config` raises.
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
    if mechanism == msk.MECHANISM:
        return msk.iam_config(properties, login.options, bootstrap_server)
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
