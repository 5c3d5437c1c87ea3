"""The HTML pages: what they read, how they say it, and how they draw it."""
