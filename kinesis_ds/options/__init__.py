"""The options of a query: the table of them, what each text may be, and what they become. Pure."""
