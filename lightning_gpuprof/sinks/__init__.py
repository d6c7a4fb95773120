"""From a Report to what people look at: terminal, HTML, JSON, TensorBoard."""
