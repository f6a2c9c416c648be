"""The load (Locust) and the experiment that turns it into a verdict."""
