"""The commands of `morrow`: one light module for each command or group, and the group that holds them all."""
