"""What is done to a guest where it is: power, rescue, rebuild, a crash dump, consoles."""
