"""The ledger of tasks: their definitions and revisions, their life (pause, archive, rename, delete) and its record."""
