"""What every server process shares: config, lifecycle, operations port, loop health, timers."""
