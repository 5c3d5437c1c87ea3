"""The ledger of retrainings: its rows, the requests for cycles, and the leases under which trainers run them."""
