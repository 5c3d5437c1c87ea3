"""Alembic's entry point: upgrades on the connection that `migrations.migrate` passes."""

from alembic import context

from store.database import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)
with context.begin_transaction():
    context.run_migrations()
