"""The programs written for the bench alone; each runs as a process of its own, some in another environment."""
