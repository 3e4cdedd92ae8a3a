"""Each protocol behavior has one section that contains all its search words."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest

from tools.pages import ROOT

DOCS: Final = ROOT / "docs"
LOOKED_FOR: Final = """
agent.json 0.1
X-A2A-Extensions A2A-Extensions
TASK_STATE_CANCELLED TASK_STATE_CANCELED
returnImmediately waits
blocking configuration 0.3 waits
historyLength negative
tasks/resubscribe finished task
SubscribeToTask snapshot
subscription GET POST
cancel needs no body
201 204
snake_case camelCase
unknown fields ignored
batch -32600
id null answered
validationToken receiver
X-A2A-Notification-Token a2a-notification-token
problem+json AIP-193
alt=json array
statusTimestampAfter lastUpdatedAfter lastUpdatedTime
includeArtifacts artifacts key
totalSize pageSize nextPageToken last page
data_part_compat
append missing artifact creates
lastChunk ignores
sessionId created if omitted
stateTransitionHistory
preferredTransport additionalInterfaces supportedInterfaces
getAuthenticatedExtendedCard -32007
application/a2a+json Accept
ETag If-None-Match 304 max-age
vary by A2A-Version
timestamps time zone UTC
base64 url-safe padding
keep-alive comment
Task not found word for word
file_with_bytes base64 text
A2A-Version header query parameter metadata
host:port scheme 0.3
/tenants/{agent} a2a-rust
messageId duplicate
referenceTaskIds hints
REJECTED AUTH_REQUIRED failed input-required
TASK_STATE_UNSPECIFIED unknown stored
request_body_sha256 jti
exponential backoff jitter
redirect 10 s again
TaskNotCancelable 409
DEADLINE_EXCEEDED blocking wait
2^53 duplicate key
CORS preflight OPTIONS
pushNotificationConfigId oldest
JWS RFC 8785 jku
detached JWS canonical
empty parts rejected
AUTH_REQUIRED stays open
race cancel completion TaskNotCancelable
can_transition_to strict_transitions
terminal state restart
text/plain body ContentTypeNotSupported
414 query too long
versions supported VersionNotSupported
another context InvalidParams
Last-Event-ID cursor
HSTS
RateLimitExceeded -32010
securityRequirements mutualTLS openIdConnect
OAuth flows implicit deviceCode pkceRequired
schemes first counts
Content-Encoding gzip
HEAD GET
acceptedOutputModes rejects nothing
input modes ContentTypeNotSupported
disconnects cancels nothing
release candidate numbers
discoveryengine.googleapis.com Gemini Enterprise
v1beta1 Vertex
DNS rebinding
link-local cloud metadata never
one `scheme` authentication
required extension ExtensionSupportRequired
tenant path precedence body
not yours TaskNotFound byte
WWW-Authenticate 401 403
event: error first event
""".strip().splitlines()


def sections() -> Iterator[str]:
    """What stands under each heading, in lower case and on one line."""
    for page in sorted(DOCS.rglob("*.md")):
        for section in re.split(r"^(?=#+ )", page.read_text("utf-8"), flags=re.MULTILINE):
            yield " ".join(section.lower().split())


EVERY: Final = list(sections())


@pytest.mark.parametrize("words", LOOKED_FOR)
def test_search_words_are_in_one_section(words: str) -> None:
    wanted = words.lower().split()
    assert any(all(word in section for word in wanted) for section in EVERY)
