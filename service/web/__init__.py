"""What every route shares: problems, authentication, bodies, parameters, pages and static files."""
