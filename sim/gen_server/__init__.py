"""The fake generation (decode) server."""
