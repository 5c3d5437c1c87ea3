"""What happens to a released version as labels arrive: scores, guard, promises, recalibration."""
