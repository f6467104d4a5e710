"""Signatures of requests by an EC2 or S3 key pair, as AWS defines versions 0, 1, 2 and 4, and Keystone computes them."""

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

V4 = "AWS4-HMAC-SHA256"
S3_SERVICES = ("s3", "iam", "sts")
_WITHOUT_PORT = re.compile(r"Boto/2\.[0-9]\.[0-2]")
"""Clients that sign the host without its port."""


def of_ec2(secret: str, said: Mapping[str, Any], host: str) -> str:
    """The signature of a request that is described by `params`, `verb`, `path`, `headers` and `body_hash`.

    Raises ValueError, KeyError, TypeError or AttributeError for what cannot be signed.
    """
    params: dict[str, Any] = dict(said["params"])
    match params.get("SignatureVersion"):
        case "0":
            return _based(_mac(secret, params["Action"] + params["Timestamp"], "sha1"))
        case "1":
            return _based(_mac(secret, "".join(f"{key}{params[key]}" for key in sorted(params, key=str.lower)), "sha1"))
        case "2":
            params["SignatureMethod"] = "HmacSHA256"
            return _based(_mac(secret, "\n".join((said["verb"], host, said["path"], _query(params)))))
        case None:
            return _version_4(secret, said, params)
        case other:
            raise ValueError(f"unknown signature version {other!r}")


def of_s3(secret: str, text: bytes) -> str:
    """The signature of a text that the object store made of a request. Raises ValueError for a malformed one."""
    if not text.startswith(b"AWS4"):
        return _based(hmac.digest(secret.encode(), text, "sha1"))
    algorithm, _, scope, _ = text.decode().split("\n")
    day, region, service, end = scope.split("/")
    if algorithm != V4 or end != "aws4_request" or service not in S3_SERVICES:
        raise ValueError("wrong scope of a signature")
    return hmac.digest(_key(secret, day, region, service), text, "sha256").hex()


def _mac(key: str | bytes, text: str, method: str = "sha256") -> bytes:
    return hmac.digest(key.encode() if isinstance(key, str) else key, text.encode(), method)


def _based(found: bytes) -> str:
    return base64.b64encode(found).decode()


def _query(params: Mapping[str, Any]) -> str:
    return "&".join(f"{quote(key, safe='')}={quote(str(params[key]), safe='-_~')}" for key in sorted(params))


def _key(secret: str, *parts: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (*parts, "aws4_request"):
        key = _mac(key, part)
    return key


def _version_4(secret: str, said: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    headers: Mapping[str, str] = said.get("headers") or {}
    written = headers.get("Authorization", "")
    if not written.startswith(V4) and params.get("X-Amz-Algorithm") != V4:
        raise ValueError("no signature of a known version")

    def part(name: str) -> str:
        found = (
            written.partition(f"{name}=")[2].split(",")[0] if "Authorization" in headers else params[f"X-Amz-{name}"]
        )
        return str(found)

    lower = {name.lower().strip(): value.strip() for name, value in headers.items()}
    if _WITHOUT_PORT.match(lower.get("user-agent", "")) and "host" in lower:
        lower["host"] = lower["host"].split(":")[0]
    signed = part("SignedHeaders")
    listed = "".join(f"{name}:{lower[name]}\n" for name in signed.split(";") if name in lower) or "\n"
    query = "" if said["verb"].upper() == "POST" else _query(params)
    request = "\n".join((said["verb"].upper(), said["path"], query, listed, signed, said["body_hash"]))
    _, day, region, service, *rest = part("Credential").split("/")
    at = str(headers.get("X-Amz-Date") or params["X-Amz-Date"])
    if not day or not at.startswith(day):
        raise ValueError("the date of the request is not that of its scope")
    scope = "/".join((day, region, service, *rest))
    text = "\n".join((V4, at, scope, hashlib.sha256(request.encode()).hexdigest()))
    return _mac(_key(secret, day, region, service), text).hex()
