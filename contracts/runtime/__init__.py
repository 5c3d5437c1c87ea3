"""What every process of Morrow sets up first: settings, logs, the cores it may use, the addresses it may bind."""
