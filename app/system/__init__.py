"""The machine: its devices, files, memory, signals, ports and processes, and the terminal."""
