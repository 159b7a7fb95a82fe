"""What every command shares: its flags and how it ends."""
