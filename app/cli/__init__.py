"""The command line: flags, their help, and how every command ends."""
