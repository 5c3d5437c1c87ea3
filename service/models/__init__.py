"""Released versions in this process: follow the registry, load, verify and answer."""
