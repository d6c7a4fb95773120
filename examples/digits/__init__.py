"""Handwritten digits from image files: a small Lightning project whose data loading is slower than its model."""
