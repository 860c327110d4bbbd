"""Programs that use the connector. Run from a checkout; not part of the wheel."""
