"""Where Alembic enters. The connection, with its transaction, comes from the caller."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
