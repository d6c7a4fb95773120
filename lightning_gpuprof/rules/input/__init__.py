"""The input pipeline: loaders, workers, transforms, and the host that feeds them."""
