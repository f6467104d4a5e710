"""A cell's database: its servers, their actions and migrations, and its hosts."""
