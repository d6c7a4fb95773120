"""What is known of a model of device."""
