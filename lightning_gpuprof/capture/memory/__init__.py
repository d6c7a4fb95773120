"""Memory of the device and of the model flows in, samples and records of the journal flow out."""
