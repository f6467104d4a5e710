"""Turns a notification into messages: one for each format and topic, as oslo.messaging's notifiers do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from moorage.bus.notifications import Message
from moorage.model.audit_event import Audited
from moorage.model.notification import Notification, NotificationFormat
from moorage.operations.notifications import unversioned, versioned
from moorage.operations.notifications.audit_periods import moment


@dataclass(frozen=True)
class Wording:
    """The formats and topics that operators configured."""

    format: NotificationFormat = "unversioned"
    topics: Sequence[str] = ("notifications",)
    versioned_topics: Sequence[str] = ("versioned_notifications",)
    image_url: str = ""
    bdms: bool = False
    """Whether unversioned notifications list the server's volumes; versioned ones always do."""


def messages_of(notification: Notification, wording: Wording) -> list[Message]:
    """The messages in the configured formats, where Nova has the event in them."""
    messages: list[Message] = []
    if wording.format in ("unversioned", "both"):
        event_type = unversioned.event_type(notification)
        if event_type is not None:
            body = unversioned.payload(notification, wording.image_url)
            publisher = unversioned.publisher_id(notification)
            messages += [_message(notification, "unversioned", t, event_type, publisher, body) for t in wording.topics]
    if wording.format in ("versioned", "both"):
        event_type, publisher = versioned.event_type(notification), versioned.publisher_id(notification)
        body = versioned.payload(notification, bdms=wording.bdms)
        messages += [
            _message(notification, "versioned", t, event_type, publisher, body) for t in wording.versioned_topics
        ]
    return messages


def audit_messages(event: Audited, wording: Wording) -> list[Message]:
    """An event of the audit log, to the topics of the unversioned format; CADF is a format of its own."""
    context = {
        "request_id": event.request_id,
        "global_request_id": event.global_request_id or None,
        "user_id": event.user,
        "project_id": event.project,
    }
    body = {
        "message_id": event.id,
        "publisher_id": event.publisher,
        "event_type": event.event_type,
        "priority": "INFO",
        "payload": msgspec.json.decode(event.cadf),
        "timestamp": str(moment(event.at).replace(tzinfo=None)),
    }
    return [Message(topic=topic, priority="info", context=context, body=body) for topic in wording.topics]


def _message(
    notification: Notification, format: str, topic: str, event_type: str, publisher: str, payload: dict[str, Any]
) -> Message:
    priority = "ERROR" if event_type.endswith(".error") else "INFO"
    return Message(
        topic=topic,
        priority=priority.lower(),
        context={
            "request_id": notification.request_id,
            "global_request_id": notification.global_request_id or None,
            "user_id": notification.user,
            "project_id": notification.project,
        },
        body={
            "message_id": notification.message_id(format),
            "publisher_id": publisher,
            "event_type": event_type,
            "priority": priority,
            "payload": payload,
            "timestamp": str(moment(notification.at).replace(tzinfo=None)),
        },
    )
