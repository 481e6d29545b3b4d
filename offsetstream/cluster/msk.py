"""Login to Amazon MSK by IAM: Java clients use Amazon's plugin, librdkafka uses tokens of Amazon's signer.

For a broker of MSK both are the same: a request that is signed with AWS credentials and valid for 15 minutes.
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
# Options of the plugin's login module that the signer supports, too. The harmless ones do not affect the identity.
_PROFILE, _ROLE, _SESSION = "awsProfileName", "awsRoleArn", "awsRoleSessionName"
_HARMLESS = {"awsDebugCreds", "awsMaxRetries", "awsMaxBackOffTimeMs"}
_HOST = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_FRESH_SECONDS = 300.0  # librdkafka requests a new token when a fifth of its lifetime is left: three minutes

Token = tuple[str, float]  # the token, and its expiration in seconds since 1970


def java_plugins(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the Maven coordinates of the plugins that Java clients need for these client properties."""
    return (_PLUGIN,) if properties.get("sasl.mechanism") == MECHANISM else ()


def iam_config(properties: Mapping[str, str], options: Mapping[str, str], bootstrap_server: str) -> dict[str, Any]:
    """Return librdkafka's configuration for a login by tokens. `options` are those of the plugin's login module.

    Raises UsageError for an option that the signer lacks, UnauthorisedError without AWS credentials, and
    ModuleNotFoundError without the signer.
    """
    if not properties.get(HANDLER, "").endswith(_HANDLER_CLASS):
        raise UsageError(f"sasl.mechanism={MECHANISM} needs {HANDLER}={_HANDLER_CLASS}")
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
        from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415

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
