"""Input: loaders, workers, transforms, and the host that feeds them."""
