"""Our tab in TensorBoard: the reports of the runs under its log directory."""
