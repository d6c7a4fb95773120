"""Our tab in TensorBoard: run folders under its log directory flow in, the views of their reports flow out."""
