"""The input pipeline from inside: what DataLoader workers do, measured there; how full their queue is."""
