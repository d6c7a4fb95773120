"""Whether a trace is worth believing, and its plain facts."""
