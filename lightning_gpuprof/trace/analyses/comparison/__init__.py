"""One trace against another."""
