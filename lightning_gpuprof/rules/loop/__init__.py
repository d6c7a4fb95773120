"""Loop: what Lightning runs beside the model, as callbacks, loggers, schedulers, validation, checkpoints."""
