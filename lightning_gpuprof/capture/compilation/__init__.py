"""What ``torch.compile`` does during a run: from dynamo's own counters into the journal, off the main thread."""
