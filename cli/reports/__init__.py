"""Tables and sentences that commands print for people."""
