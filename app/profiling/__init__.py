"""Where the time goes: recorded profiles read in words, and the same measured without one."""
