"""What this machine is, and the settings of its kernel that clusters need."""
