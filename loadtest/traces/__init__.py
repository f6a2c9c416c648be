"""Recordings of real request streams: one reader for each format that is public, one way to read them all."""
