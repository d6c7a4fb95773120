"""What the machine under the training does, read from /proc and control groups by threads of our own."""
