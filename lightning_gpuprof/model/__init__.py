"""The words and data shapes that every other room shares; no work is done here."""
