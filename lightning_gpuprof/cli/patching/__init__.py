"""Advice as data and the user's files flow in; a unified diff of them flows out."""
