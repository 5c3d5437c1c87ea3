"""The needs of every process of Morrow at its start: settings, logs, its cores, addresses, and Python children."""
