"""What every process of Morrow needs at its start: settings, logs, its cores, addresses, and Python children."""
