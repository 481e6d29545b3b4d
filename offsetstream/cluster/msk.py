"""Amazon MSK's login by IAM: Java clients have Amazon's plugin for it, librdkafka the tokens of Amazon's signer.

To a broker of MSK both are the same: a request, signed by AWS credentials, that lives for a quarter of an hour.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from typing import Any

from offsetstream.errors import UnauthorisedError, UsageError

MECHANISM = "AWS_MSK_IAM"
HANDLER = "sasl.client.callback.handler.class"
_PLUGIN = "software.amazon.msk:aws-msk-iam-auth:2.3.5"
_HANDLER_CLASS = "software.amazon.msk.auth.iam.IAMClientCallbackHandler"
# Options of the plugin's login module that the signer has too; the others are of no consequence for who logs in.
_PROFILE, _ROLE, _SESSION = "awsProfileName", "awsRoleArn", "awsRoleSessionName"
_HARMLESS = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_FRESH_SECONDS = 300.0  # librdkafka asks for another token when a fifth of its life is left: three minutes

Token = tuple[str, float]  # and when it ends, in seconds since 1970


def java_plugins(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Maven coordinates that Java's clients need besides for the client properties."""
    return (_PLUGIN,) if properties.get("sasl.mechanism") == MECHANISM else ()


def iam_config(properties: Mapping[str, str], options: Mapping[str, str], bootstrap_server: str) -> dict[str, Any]:
    """Return the login for librdkafka, by tokens; `options` are those of the plugin's login module.

    Raises UsageError for what the signer does not have, UnauthorisedError where AWS gives no credentials,
    ModuleNotFoundError without the signer.
    """
    if not properties.get(HANDLER, "").endswith(_HANDLER_CLASS):
        raise UsageError(f"sasl.mechanism={MECHANISM} needs {HANDLER}={_HANDLER_CLASS}")
    others = options.keys() - {_PROFILE, _ROLE, _SESSION} - _HARMLESS
    if others:
        raise UsageError(f"{min(others)} in sasl.jaas.config has no counterpart in Amazon's signer: leave it out")
    signer = Signer(_region(bootstrap_server), options)
    signer()  # who has no credentials is told so now: librdkafka would wait ten seconds, and not say why
    return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": signer}


def _region(bootstrap_server: str) -> str:
    """Return the brokers' AWS region, as the plugin finds it: by their names, else by the environment."""
    named = _HOST.search(bootstrap_server)
    found = named[1] if named else next(filter(None, map(os.environ.get, _REGIONS)), None)
    if found is None:
        raise UsageError(f"{bootstrap_server} names no AWS region: set AWS_REGION to that of the cluster")
    return found


class Signer:
    """Amazon's signer as librdkafka calls it: for a token whenever the last one is about to end."""

    def __init__(self, region: str, options: Mapping[str, str]) -> None:
        self._region = region
        self._options = options
        self._last: Token = ("", 0.0)

    def __call__(self, _config: str | None = None) -> Token:
        """Return a token and its end; UnauthorisedError where AWS gives no credentials."""
        if self._last[1] - time.time() < _FRESH_SECONDS:
            self._last = self._sign()
        return self._last

    def _sign(self) -> Token:
        from aws_msk_iam_sasl_signer import MSKAuthTokenProvider as Provider  # noqa: PLC0415 - of the extra msk
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

        try:
            if _ROLE in self._options:
                session = {"sts_session_name": self._options[_SESSION]} if _SESSION in self._options else {}
                signed = Provider.generate_auth_token_from_role_arn(self._region, self._options[_ROLE], **session)
            elif _PROFILE in self._options:
                signed = Provider.generate_auth_token_from_profile(self._region, self._options[_PROFILE])
            else:
                signed = Provider.generate_auth_token(self._region)
        except AttributeError as error:  # the signer's, of credentials that are None
            raise UnauthorisedError(
                "AWS has no credentials here for MSK: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, "
                "or run where a role is attached"
            ) from error
        except (BotoCoreError, ClientError, ValueError) as error:
            raise UnauthorisedError(f"AWS gives no credentials for MSK: {error}") from error
        token, ends_ms = signed
        return token, ends_ms / 1000
