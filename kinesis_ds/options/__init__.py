"""The options of a query: their table, how their texts are parsed, and the results. Pure."""
