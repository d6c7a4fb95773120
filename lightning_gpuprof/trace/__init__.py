"""From a Kineto trace file to columns, and from columns to the facts of one window."""
