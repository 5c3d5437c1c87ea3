"""Released versions in this process: following the registry, loading, verifying, answering."""
