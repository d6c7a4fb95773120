"""Two runs side by side: step times with their uncertainty, changes, findings, trace windows."""
