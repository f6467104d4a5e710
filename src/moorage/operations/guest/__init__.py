"""Operations on a guest where it is: power, rescue, rebuild, crash dump, consoles."""
