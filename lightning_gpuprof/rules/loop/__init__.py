"""What Lightning's loop runs beside the model: callbacks, loggers, schedulers, validation, checkpoints."""
