"""The machine: devices, files, memory, signals, ports, processes, the terminal."""
