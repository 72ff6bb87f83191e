"""Options of commands that serve: where the audit log goes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from nanobot.errors import UsageError

if TYPE_CHECKING:
    from nanobot.hub.audit.log import AuditSettings


def audit_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options; the command gets them as one argument `audit`, None while there is no audit log."""

    @click.option("--audit-log-send-url", metavar="URL", help="Send audit entries to this HTTP endpoint.")
    @click.option("--audit-log-token", metavar="TOKEN", help="Bearer token for that endpoint.")
    @click.option(
        "--audit-log-file", metavar="PATH", type=click.Path(dir_okay=False),
        help="Write audit entries to this file, one JSON object a line; it is rotated at 100 MB.",
    )  # fmt: skip
    @click.option(
        "--audit-log-metadata", multiple=True, metavar="KEY=VALUE",
        help="Put this into every audit entry; may be repeated.",
    )  # fmt: skip
    @click.option(
        "--audit-log-bodies", type=click.Choice(["full", "redacted", "none"]), default="full",
        show_default=True, help="How much of messages audit entries show.",
    )  # fmt: skip
    @click.option(
        "--audit-log-batch-size", type=click.IntRange(1, 100_000), default=1000,
        show_default=True, help="Send as soon as this many entries wait; never more at once.",
    )  # fmt: skip
    @click.option(
        "--audit-log-flush-interval-seconds", type=click.FloatRange(0.05, 3600), default=5,
        show_default=True, help="Send what waits this often.",
    )  # fmt: skip
    @functools.wraps(command)
    def with_audit(
        *args: Any,
        audit_log_send_url: str | None,
        audit_log_token: str | None,
        audit_log_file: str | None,
        audit_log_metadata: tuple[str, ...],
        audit_log_bodies: Any,
        audit_log_batch_size: int,
        audit_log_flush_interval_seconds: float,
        **options: Any,
    ) -> Any:
        audit: AuditSettings | None = None
        if audit_log_send_url or audit_log_file:
            from nanobot.hub.audit.log import AuditSettings, read_metadata

            if audit_log_send_url and not audit_log_send_url.startswith(("http://", "https://")):
                raise UsageError("--audit-log-send-url must begin with http:// or https://.")
            audit = AuditSettings(
                send_url=audit_log_send_url or "",
                token=audit_log_token or "",
                file=Path(audit_log_file).absolute() if audit_log_file else None,
                metadata=read_metadata(audit_log_metadata),
                bodies=audit_log_bodies,
                batch_size=audit_log_batch_size,
                flush_s=audit_log_flush_interval_seconds,
            )
        elif audit_log_token or audit_log_metadata:
            raise UsageError("An audit log needs --audit-log-send-url or --audit-log-file.")
        return command(*args, audit=audit, **options)

    return with_audit
