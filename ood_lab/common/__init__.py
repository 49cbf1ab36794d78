"""What knows nothing of the field: errors, checked arguments, files, machine, console."""
