"""The routes that define tasks, ask for cycles, change releases, and report state and health."""
