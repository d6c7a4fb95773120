"""A Report as what people look at: terminal, HTML, JSON, TensorBoard."""
