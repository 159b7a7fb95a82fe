"""Training over several devices, processes and machines."""
