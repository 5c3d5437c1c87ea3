"""The HTTP server below the app: one connection, the heartbeats between workers, gauges read at scrape time."""
