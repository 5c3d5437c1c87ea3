"""The HTTP server below the app: one connection, and the heartbeats between workers."""
